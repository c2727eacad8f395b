#include "communicate/nccl/group.hpp"

#include <cassert>
#include <cstdlib>
#include <exception>
#include <map>
#include <utility>
#include <vector>

#include "dat/error.hpp"
#include "printed.hpp"

namespace dat {

namespace {

/// The first version that lets several ranks use a GPU, where the user asks for it.
constexpr int kSharesGpus = 23000;
/// Message after the hang watch has ended the sums: the data on the device then is no sum.
const char* const kEnded = "NCCL's sums have been ended, after an error";

[[nodiscard]] nccl::Type type_of(DType type) {
  assert(type == DType::f32 || type == DType::f16 || type == DType::bf16);
  return type == DType::f16 ? nccl::float16 : type == DType::bf16 ? nccl::bfloat16 : nccl::float32;
}

/// "rank 3: TEXT" of the first rank that says something.
[[nodiscard]] std::string first_of(Communicator& ranks, const std::vector<std::string>& all) {
  for (std::size_t rank = 0; rank < all.size(); ++rank)
    if (!all[rank].empty())
      return "rank " + std::to_string(ranks.launch_rank(static_cast<int>(rank))) + ": " + all[rank];
  return "";
}

[[nodiscard]] std::string different_versions(Communicator& ranks, const std::vector<std::string>& all) {
  for (std::size_t rank = 1; rank < all.size(); ++rank)
    if (all[rank] != all[0])
      return "the ranks have different versions of NCCL: rank " + std::to_string(ranks.launch_rank(0)) + " has " +
             all[0] + ", rank " + std::to_string(ranks.launch_rank(static_cast<int>(rank))) + " has " + all[rank];
  return "";
}

[[nodiscard]] std::string shared_gpus(Communicator& ranks, const std::vector<std::string>& all) {
  std::map<std::string, int> first;
  for (std::size_t k = 0; k < all.size(); ++k) {
    const int rank = ranks.launch_rank(static_cast<int>(k));
    if (all[k].empty()) continue;  // it may share
    if (const auto [found, is_new] = first.emplace(all[k], rank); !is_new)
      return "ranks " + std::to_string(found->second) + " and " + std::to_string(rank) +
             " share one GPU, which NCCL refuses: start one rank per GPU";
  }
  return "";
}

}  // namespace

std::unique_ptr<NcclGroup> NcclGroup::join(Communicator& ranks, const std::string& gpu, std::string& why) {
  // Rank 0 judges by what the ranks say, and tells all.
  const auto refused = [&](const std::string& said, const auto& judge) {
    const std::vector<std::string> all = ranks.gather(said);
    why = ranks.root() ? judge(ranks, all) : "";
    ranks.broadcast(why);
    return !why.empty();
  };
  std::string mine;
  const nccl::Library* const library = nccl::library(mine);
  if (gpu.empty()) mine = "it has no GPU";
  int version{};
  if (mine.empty() && library->get_version(&version) != nccl::success) mine = "NCCL does not tell its version";
  if (refused(mine, first_of) || refused(nccl::version_text(version), different_versions)) return nullptr;
  const char* const shares = std::getenv("NCCL_MULTI_RANK_GPU_ENABLE");
  const bool may_share = version >= kSharesGpus && shares != nullptr && std::string(shares) == "1";
  if (refused(may_share ? "" : host_name() + " " + gpu, shared_gpus)) return nullptr;

  nccl::UniqueId id{};
  const auto text = [&](const char* call, nccl::Result result) {
    return result == nccl::success
               ? std::string()
               : std::string(call) + ": " + library->error_string(result) + " (" + library->last_error(nullptr) + ")";
  };
  if (refused(ranks.root() ? text("ncclGetUniqueId", library->get_unique_id(&id)) : "", first_of)) return nullptr;
  ranks.broadcast(&id, sizeof id);
  nccl::Communication* communication = nullptr;
  nccl::Result result = nccl::success;
  ranks.meet([&] { result = library->init_rank(&communication, ranks.size(), id, ranks.rank()); });
  const std::string failed = text("ncclCommInitRank", result);
  // Others may wait for this rank in their call, until the hang watch ends them.
  if (!failed.empty()) say("note: rank " + std::to_string(ranks.launch_rank()) + ": " + failed);
  if (refused(failed, first_of)) {
    if (result == nccl::success) (void)library->abort(communication);
    return nullptr;
  }
  std::unique_ptr<NcclGroup> group(new NcclGroup(*library, communication));
  group->enter();
  return group;
}

NcclGroup::~NcclGroup() {
  leave();
  // While an error goes up, the others may never come to the end of what is queued.
  if (std::uncaught_exceptions() > 0) abort();
  if (communication_ == nullptr) return;
  (void)library_.finalize(communication_);
  (void)library_.destroy(communication_);
}

std::string NcclGroup::text_of(const char* call, nccl::Result result) {
  return std::string("NCCL has failed: ") + call + ": " + library_.error_string(result) + " (" +
         library_.last_error(communication_) + "); NCCL_DEBUG=INFO makes it tell more";
}

void NcclGroup::sum(void* data, std::int64_t count, DType type, void* stream) {
  std::string why = kEnded;
  {
    const std::scoped_lock lock(mutex_);
    if (communication_ != nullptr) {
      const nccl::Result result = library_.all_reduce(data, data, static_cast<std::size_t>(count), type_of(type),
                                                      nccl::add, communication_, stream);
      why = result == nccl::success ? "" : text_of("ncclAllReduce", result);
    }
  }
  end(why);
}

bool NcclGroup::alive() {
  const std::scoped_lock lock(mutex_);
  return communication_ != nullptr;
}

void NcclGroup::check() { end(failure()); }

void NcclGroup::end(const std::string& why) {
  if (why.empty()) return;
  abort();  // or what is queued would wait for ever
  fail(ExitCode::communication, why);
}

std::string NcclGroup::failure() {
  // A call under way, which may wait for the other ranks, is not waited for.
  const std::unique_lock lock(mutex_, std::try_to_lock);
  return lock && communication_ != nullptr ? error() : "";
}

std::string NcclGroup::error() {
  nccl::Result error = nccl::success;
  if (const nccl::Result result = library_.get_async_error(communication_, &error); result != nccl::success)
    return text_of("ncclCommGetAsyncError", result);
  return error == nccl::success || error == nccl::in_progress ? "" : text_of("a sum", error);
}

void NcclGroup::abort() {
  const std::scoped_lock lock(mutex_);
  if (auto* const communication = std::exchange(communication_, nullptr)) (void)library_.abort(communication);
}

}  // namespace dat
