// libjpeg-turbo's own rate, with none of this project's code: bench_libjpeg THREADS SECONDS FILES
// Files are read before the clock starts; each thread decodes whole images to RGB. dat_hpc bench --data prints the
// loader's.

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <thread>
#include <vector>

// Its header needs stdio's types.
#include <jpeglib.h>

namespace {

using Bytes = std::vector<unsigned char>;

void decode(const Bytes& file, Bytes& pixels) {
  jpeg_decompress_struct info;
  jpeg_error_mgr errors;  // ends the program
  info.err = jpeg_std_error(&errors);
  jpeg_create_decompress(&info);
  jpeg_mem_src(&info, file.data(), static_cast<unsigned long>(file.size()));
  jpeg_read_header(&info, TRUE);
  info.out_color_space = JCS_RGB;
  jpeg_start_decompress(&info);
  const std::size_t row = std::size_t{info.output_width} * 3;
  pixels.resize(row * info.output_height);
  while (info.output_scanline < info.output_height) {
    JSAMPROW to = pixels.data() + row * info.output_scanline;
    jpeg_read_scanlines(&info, &to, 1);
  }
  jpeg_finish_decompress(&info);
  jpeg_destroy_decompress(&info);
}

}  // namespace

int main(int count, char** words) {
  if (count < 4) return std::fprintf(stderr, "bench_libjpeg THREADS SECONDS FILES\n"), 2;
  std::vector<Bytes> files;
  for (int k = 3; k < count; ++k) {
    std::ifstream file(words[k], std::ios::binary);
    files.emplace_back(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
  }
  const int threads = std::atoi(words[1]);
  const auto begin = std::chrono::steady_clock::now();
  const auto seconds = [&] { return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count(); };
  std::atomic<std::size_t> next = 0, done = 0;
  std::vector<std::thread> all;
  for (int k = 0; k < threads; ++k)
    all.emplace_back([&] {
      for (Bytes pixels; seconds() < std::atof(words[2]); ++done) decode(files[next++ % files.size()], pixels);
    });
  for (std::thread& one : all) one.join();
  std::printf("%.1f images/s\n", static_cast<double>(done) / seconds());
}
