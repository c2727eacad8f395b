#include "data/images/png.hpp"

#include <png.h>

#include <csetjmp>
#include <cstdio>
#include <cstring>

#include "dat/error.hpp"

namespace dat {

namespace {

struct PngJob {
  ImageBytes file;
  std::size_t at = 0;
  ImageShape shape{}, expected{};  // shape in the file, and shape that it must have where it is decoded
  std::uint8_t* rgb = nullptr;     // null: the head is enough
  char text[256] = "";
};

void leave(png_structp png, png_const_charp text) {
  auto* job = static_cast<PngJob*>(png_get_error_ptr(png));
  std::snprintf(job->text, sizeof job->text, "%s", text);
  png_longjmp(png, 1);
}

void pass_over(png_structp, png_const_charp) {}

void read_bytes(png_structp png, png_bytep to, std::size_t bytes) {
  auto* job = static_cast<PngJob*>(png_get_io_ptr(png));
  if (job->file.size() - job->at < bytes) png_error(png, "the file is cut off");
  std::memcpy(to, job->file.data() + job->at, bytes);
  job->at += bytes;
}

/// False where the library has met an error. No object with a destructor may live here: errors jump over it.
bool run_png(png_structp png, png_infop info, PngJob& job) {
  if (setjmp(png_jmpbuf(png)) != 0) return false;
  png_set_read_fn(png, &job, read_bytes);
  png_set_user_limits(png, kMostPixels, kMostPixels);
  constexpr png_alloc_size_t kMostChunk = 8U << 20U;
  png_set_chunk_malloc_max(png, kMostChunk);
  png_set_chunk_cache_max(png, 1);  // none: texts, which may be packed a thousand to one, are passed over
  png_read_info(png, info);
  job.shape = {static_cast<int>(png_get_image_height(png, info)), static_cast<int>(png_get_image_width(png, info))};
  if (area_of(job.shape) > kMostArea) png_error(png, "has more pixels than are taken");
  if (job.rgb == nullptr) return true;
  if (job.shape != job.expected) {
    std::snprintf(job.text, sizeof job.text, "has %d x %d pixels instead of %d x %d", job.shape.width, job.shape.height,
                  job.expected.width, job.expected.height);
    return false;
  }
  png_set_expand(png);
  png_set_strip_16(png);
  png_set_strip_alpha(png);
  png_set_gray_to_rgb(png);
  const int passes = png_set_interlace_handling(png);
  png_read_update_info(png, info);
  const std::size_t bytes = png_get_rowbytes(png, info);
  if (bytes != std::size_t{3} * static_cast<std::size_t>(job.shape.width)) png_error(png, "an unknown form of pixels");
  for (int pass = 0; pass < passes; ++pass)
    for (int y = 0; y < job.shape.height; ++y)
      png_read_row(png, job.rgb + static_cast<std::size_t>(y) * bytes, nullptr);
  png_read_end(png, nullptr);
  return true;
}

void run_png(PngJob& job) {
  png_structp png = png_create_read_struct(PNG_LIBPNG_VER_STRING, &job, leave, pass_over);
  png_infop info = png_create_info_struct(png);
  const bool done = info != nullptr && run_png(png, info, job);
  png_destroy_read_struct(&png, &info, nullptr);
  require(done, ExitCode::data, job.text);
}

}  // namespace

bool is_png(ImageBytes file) { return file.size() >= 8 && png_sig_cmp(file.data(), 0, 8) == 0; }

ImageShape png_shape(ImageBytes file) {
  PngJob job{.file = file};
  run_png(job);
  return job.shape;
}

void decode_png(ImageBytes file, ImageShape shape, std::uint8_t* rgb) {
  PngJob job{.file = file, .at = 0, .shape = {}, .expected = shape, .rgb = rgb};
  run_png(job);
}

}  // namespace dat
