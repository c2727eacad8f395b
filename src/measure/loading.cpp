#include "measure/loading.hpp"

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

#include "measure/repeat.hpp"

namespace dat {

ReadingRate decoding_rate(const Dataset& images, int threads, double seconds) {
  const std::int64_t stride = images.size() % 7919 == 0 ? 7907 : 7919;  // files as a shuffle takes them
  std::atomic<std::int64_t> next = 0, done = 0, bytes = 0;
  std::exception_ptr failure;
  std::mutex mutex;
  const double begin = now_ms(), end = begin + 1e3 * seconds;
  const auto work = [&] {
    std::vector<std::uint8_t> pixels;
    try {
      do {
        const std::int64_t index = next++ * stride % images.size();
        const ImageShape shape = images.shape(index);
        const ImageWindow all{0, 0, shape.height, shape.width};
        const std::size_t size = all.rgb_bytes() / 3 * static_cast<std::size_t>(images.info().channels);
        pixels.resize(std::max(size, pixels.size()));
        images.see(index, {.window = all, .resized = shape, .part = all}, pixels.data());
        bytes += static_cast<std::int64_t>(size);
        ++done;
      } while (now_ms() < end);
    } catch (...) {
      const std::lock_guard lock(mutex);
      failure = std::current_exception();
    }
  };
  std::vector<std::jthread> others;
  for (int k = 1; k < threads; ++k) others.emplace_back(work);
  work();
  others.clear();
  if (failure) std::rethrow_exception(failure);
  const double taken = 1e-3 * (now_ms() - begin);
  return {static_cast<double>(done) / taken, static_cast<double>(bytes) / taken};
}

ReadingRate loading_rate(const Dataset& images, const LoaderOptions& options, double seconds) {
  Loader loader(images, 1, 0, options);
  for (int k = 0; k <= std::min(options.prefetch, 2); ++k) static_cast<void>(loader.next());
  const double begin = now_ms(), end = begin + 1e3 * seconds;
  double count = 0, bytes = 0;
  int batches = 0;
  do {
    const HostBatch& batch = loader.next();
    count += batch.count;
    bytes += static_cast<double>(batch.count) * batch.side * batch.side * images.info().channels;
  } while (++batches < 2 || now_ms() < end);
  const double taken = 1e-3 * (now_ms() - begin);
  return {count / taken, bytes / taken};
}

}  // namespace dat
