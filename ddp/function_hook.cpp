// make_hook: a CommunicationHook from one function.
#include <atomic>
#include <utility>
#include <vector>

#include "ddp/wrong_result.hpp"
#include "lib/reduce/copy.hpp"
#include "lockstep/ddp/communication_hook.hpp"

namespace lockstep {
namespace {

class FunctionHook final : public CommunicationHook {
 public:
  using Function = std::function<HookResult(Communicator&, const GradientBucket&)>;
  FunctionHook(std::string name, Function function)
      : name_(std::move(name)), function_(std::move(function)) {}

  std::string name() const override { return name_; }

  void attach(Communicator&, const BucketPlan& plan, std::span<const Parameter>) override {
    results_.assign(plan.buckets.size(), nullptr);
  }

  Work start(Communicator& communicator, const GradientBucket& bucket) override {
    HookResult result = function_(communicator, bucket);
    if (result.data != nullptr && result.count != bucket.count) {
      result.work.wait();  // The memory that it works on is the caller's again after the error.
      results_[bucket.index] = nullptr;
      throw internal::WrongResult(bucket.index, result.count);
    }
    results_[bucket.index] = result.data;
    bytes_ += bucket.bytes();
    return std::move(result.work);
  }

  void finish(const GradientBucket& bucket) override {
    const void* result = results_[bucket.index];
    if (result != nullptr) internal::copy_bytes(bucket.data, result, bucket.bytes());
  }

  std::uint64_t bytes_on_wire() const override { return bytes_; }

 private:
  const std::string name_;
  const Function function_;
  std::vector<const void*> results_;  // Of each bucket; null: in place.
  std::atomic<std::uint64_t> bytes_{0};
};

}  // namespace

std::shared_ptr<CommunicationHook> make_hook(
    std::string name, std::function<HookResult(Communicator&, const GradientBucket&)> function) {
  if (!function) throw Error(ErrorCode::invalid_argument, "make_hook: \"" + name + "\" has no function");
  return std::make_shared<FunctionHook>(std::move(name), std::move(function));
}

}  // namespace lockstep
