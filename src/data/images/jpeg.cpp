#include "data/images/jpeg.hpp"

#include <algorithm>
#include <cassert>
#include <csetjmp>
#include <cstdio>

// Its header needs stdio's types.
#include <jerror.h>
#include <jpeglib.h>

#include "dat/error.hpp"

namespace dat {

namespace {

constexpr int kMostScans = 500;                            // real files have some ten
constexpr std::int64_t kMostWork = std::int64_t{1} << 31;  // pixels of all scans: each is a pass over the image

/// Errors of the library, which must not return from its handler: it goes on where `place` was set.
struct Handler {
  jpeg_error_mgr base;  // first: the library knows this part
  std::jmp_buf place;
  char text[JMSG_LENGTH_MAX];
};

struct JpegJob {
  ImageBytes file;
  ImageShape shape, expected;  // shape in the file, and shape that it must have where it is decoded
  ImageWindow window;
  int eighths = 8;
  std::uint8_t* rgb = nullptr;  // null: the head is enough
};

void leave(j_common_ptr info) {
  auto* handler = reinterpret_cast<Handler*>(info->err);
  info->err->format_message(info, handler->text);
  std::longjmp(handler->place, 1);
}

/// Warnings after which pixels are guessed are errors.
void warn(j_common_ptr info, int level) {
  if (level != -1) return;  // a trace
  switch (info->err->msg_code) {
    case JWRN_ADOBE_XFORM:
    case JWRN_BOGUS_PROGRESSION:
    case JWRN_EXTRANEOUS_DATA:
    case JWRN_JFIF_MAJOR:
      return;
    default:
      leave(info);
  }
}

void count_scans(j_common_ptr info) {
  const auto* image = reinterpret_cast<j_decompress_ptr>(info);
  const std::int64_t scans = image->input_scan_number, pixels = std::int64_t{image->image_height} * image->image_width;
  if (scans > kMostScans || scans * pixels > kMostWork) {
    info->err->msg_code = JERR_BAD_PROGRESSION;
    leave(info);
  }
}

void from_inverted_cmyk(const std::uint8_t* from, int width, std::uint8_t* rgb) {
  for (int x = 0; x < width; ++x) {
    // White that is left after black, then after the colour, as inverted numbers are 255 - ink.
    const int white = from[4 * x + 3];
    for (int c = 0; c < 3; ++c) {
      const int ink = (255 - from[4 * x + c]) * white + 128;
      rgb[3 * x + c] = static_cast<std::uint8_t>(std::clamp(white - ((ink + (ink >> 8)) >> 8), 0, 255));
    }
  }
}

void read_rows(jpeg_decompress_struct& info, JpegJob& job) {
  const ImageWindow& window = job.window;
  const bool inks = info.jpeg_color_space == JCS_CMYK || info.jpeg_color_space == JCS_YCCK;
  info.out_color_space = inks ? JCS_CMYK : JCS_RGB;
  info.scale_num = static_cast<unsigned>(job.eighths);
  info.scale_denom = 8;
  jpeg_start_decompress(&info);
  const auto width = static_cast<int>(info.output_width), height = static_cast<int>(info.output_height);
  assert(window.top + window.height <= height && window.left + window.width <= width);
  // Colours of a column depend on its neighbours', which at the edge of what is cut are missing: a block more.
  const int block = 8 * info.max_h_samp_factor;
  JDIMENSION left = static_cast<JDIMENSION>(std::max(0, window.left - block));
  if (window.width < width) {
    JDIMENSION columns = static_cast<JDIMENSION>(std::min(width, window.left + window.width + block)) - left;
    jpeg_crop_scanline(&info, &left, &columns);
  }
  const auto components = static_cast<std::size_t>(info.output_components);
  // At odd addresses: the library would write aligned rows past the caches, from where they are to be read at once.
  JSAMPARRAY aligned = info.mem->alloc_sarray(reinterpret_cast<j_common_ptr>(&info), JPOOL_IMAGE,
                                              static_cast<JDIMENSION>(info.output_width * components + 1), 1);
  JSAMPROW row = aligned[0] + 1;
  const std::uint8_t* first = row + (static_cast<std::size_t>(window.left) - left) * components;
  if (window.top > 0) jpeg_skip_scanlines(&info, static_cast<JDIMENSION>(window.top));
  const std::size_t bytes = std::size_t{3} * static_cast<std::size_t>(window.width);
  for (int y = 0; y < window.height; ++y) {
    std::uint8_t* const to = job.rgb + static_cast<std::size_t>(y) * bytes;
    jpeg_read_scanlines(&info, &row, 1);
    if (inks)
      from_inverted_cmyk(first, window.width, to);
    else
      std::copy_n(first, bytes, to);
  }
  if (window.height == height) jpeg_finish_decompress(&info);
}

/// False, with this text, which names the image's width and height first.
bool refuse(Handler& handler, const JpegJob& job, const char* format, int one, int other = 0) {
  std::snprintf(handler.text, sizeof handler.text, format, job.shape.width, job.shape.height, one, other);
  return false;
}

/// False where the library has met an error. No object with a destructor may live here and below: errors jump over
/// them.
bool run_jpeg(jpeg_decompress_struct& info, Handler& handler, JpegJob& job) {
  if (setjmp(handler.place) != 0) return false;
  jpeg_mem_src(&info, job.file.data(), static_cast<unsigned long>(job.file.size()));
  jpeg_read_header(&info, TRUE);
  job.shape = {static_cast<int>(info.image_height), static_cast<int>(info.image_width)};
  if (std::max(job.shape.height, job.shape.width) > kMostPixels)
    return refuse(handler, job, "has %d x %d pixels, at most %d on a side are taken", kMostPixels);
  if (area_of(job.shape) > kMostArea)
    return refuse(handler, job, "has %d x %d pixels, at most %d million are taken", kMostArea >> 20);
  if (job.rgb == nullptr) return true;
  if (job.shape != job.expected)
    return refuse(handler, job, "has %d x %d pixels instead of %d x %d", job.expected.width, job.expected.height);
  read_rows(info, job);
  return true;
}

void run_jpeg(JpegJob& job) {
  jpeg_decompress_struct info{};
  jpeg_progress_mgr progress{};
  Handler handler{};
  info.err = jpeg_std_error(&handler.base);
  handler.base.error_exit = leave;
  handler.base.emit_message = warn;
  progress.progress_monitor = count_scans;
  jpeg_create_decompress(&info);
  info.progress = &progress;
  const bool done = run_jpeg(info, handler, job);
  jpeg_destroy_decompress(&info);
  require(done, ExitCode::data, handler.text);
}

}  // namespace

bool is_jpeg(ImageBytes file) { return file.size() > 2 && file[0] == 0xFF && file[1] == 0xD8 && file[2] == 0xFF; }

ImageShape jpeg_shape(ImageBytes file) {
  JpegJob job{.file = file, .shape = {}, .expected = {}, .window = {}};
  run_jpeg(job);
  return job.shape;
}

void decode_jpeg(ImageBytes file, ImageShape shape, const ImageWindow& window, std::uint8_t* rgb, int eighths) {
  JpegJob job{.file = file, .shape = {}, .expected = shape, .window = window, .eighths = eighths, .rgb = rgb};
  run_jpeg(job);
}

}  // namespace dat
