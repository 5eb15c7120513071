// A library with NCCL's interface as a contender.
#include <unistd.h>

#include <cstdlib>
#include <map>
#include <optional>
#include <stdexcept>
#include <utility>
#include <vector>

#include "bench/data.hpp"
#include "bench/device/contender.hpp"
#include "bench/device/nccl_functions.hpp"

namespace lockstep::bench {
namespace {

constexpr int kHostImmediate = 1;

/// ncclDataType_t, or nothing.
std::optional<int> nccl_type(DataType type) {
  static const std::map<DataType, int> types = {
      {DataType::i8, 0},  {DataType::u8, 1},   {DataType::i32, 2},     {DataType::u32, 3},
      {DataType::i64, 4}, {DataType::u64, 5},  {DataType::f16, 6},     {DataType::f32, 7},
      {DataType::f64, 8}, {DataType::bf16, 9}, {DataType::f8e4m3, 10}, {DataType::f8e5m2, 11}};
  const auto found = types.find(type);
  return found == types.end() ? std::nullopt : std::optional(found->second);
}

/// ncclRedOp_t of a built-in operator, or nothing.
std::optional<int> nccl_op(ReduceOp op) {
  static const std::map<ReduceOp, int> ops = {
      {ReduceOp::sum, 0}, {ReduceOp::prod, 1}, {ReduceOp::max, 2}, {ReduceOp::min, 3}, {ReduceOp::avg, 4}};
  const auto found = ops.find(op);
  return found == ops.end() ? std::nullopt : std::optional(found->second);
}

class Library final : public Contender {
 public:
  Library(Communicator& ranks, const LibraryOptions& options)
      : f_(load_nccl(options.path)), rank_(ranks.rank()), size_(ranks.size()), apart_(options.apart) {
    int version = 0;
    f_.get_version(&version);
    name_ = "NCCL " + std::to_string(version / 10000) + "." + std::to_string(version / 100 % 100) + "." +
            std::to_string(version % 100);
    if (f_.own_version != nullptr) name_ = f_.own_version();
    // Read by NCCL when the first communicator is made.
    if (apart_) setenv("NCCL_HOSTID", ("lockstep-bench-" + std::to_string(getpid())).c_str(), 1);
    struct Meeting {
      NcclFunctions::Result result = 0;  ///< Of getting the id: where there is none nobody waits for it.
      NcclFunctions::UniqueId id{};
    } meeting;
    if (rank_ == 0) meeting.result = f_.get_unique_id(&meeting.id);
    ranks.broadcast(&meeting, sizeof meeting, DataType::u8, 0);
    require(meeting.result, "ncclGetUniqueId on rank 0");
    require(f_.init_rank(&comm_, size_, meeting.id, rank_), "ncclCommInitRank");
  }
  ~Library() override {
    if (comm_ != nullptr) f_.abort(comm_);
  }

  const std::string& name() const override { return name_; }
  std::string describe() const override {
    return name_ + (apart_ ? ", every rank on a host of its own (NCCL_HOSTID): over sockets" : "");
  }
  bool offers(const Operation& operation, DataType type, ReduceOp op) const override {
    if (!nccl_type(type) || operation.source == Source::none) return false;
    if (operation.name == "all_to_all") return f_.all_to_all != nullptr;
    if (operation.name == "gather" || operation.name == "scatter") return f_.gather != nullptr;
    return !operation.reduces() || nccl_op(op) || op == ReduceOp::premul_sum;
  }
  void run(const Operation& operation, const DeviceCall& call) override {
    const int op = operation.reduces() ? operator_of(call) : 0;
    require(enqueue(operation.name, call, *nccl_type(call.type), op), std::string(operation.name).c_str());
  }
  void register_buffer(void* memory, std::size_t bytes) override {
    require(f_.register_buffer(comm_, memory, bytes, &handles_.emplace_back()), "ncclCommRegister");
  }
  void check() override {
    int state = 0;
    require(f_.async_error(comm_, &state), "ncclCommGetAsyncError");
    require(state, "an operation");
  }
  void finish() override {
    for (const auto& [key, op] : operators_) f_.destroy_op(op, comm_);
    for (void* handle : handles_) f_.deregister(comm_, handle);
    require(f_.destroy(std::exchange(comm_, nullptr)), "ncclCommDestroy");
  }

 private:
  void require(int result, const char* what) const {
    if (result == 0) return;
    throw std::runtime_error(name_ + ": " + what + ": " + f_.get_error_string(result) + ", " +
                             f_.get_last_error(comm_));
  }

  int operator_of(const DeviceCall& call) {
    if (const auto built_in = nccl_op(call.op)) return *built_in;
    const auto [entry, is_new] = operators_.try_emplace(call.type, 0);
    if (is_new) {
      std::byte scalar[16];
      encode(call.type, static_cast<std::int64_t>(call.scale), scalar);
      require(f_.create_premul_sum(&entry->second, scalar, *nccl_type(call.type), kHostImmediate, comm_),
              "ncclRedOpCreatePreMulSum");
    }
    return entry->second;
  }

  int enqueue(std::string_view name, const DeviceCall& c, int type, int op) const {
    if (name == "all_reduce") return f_.all_reduce(c.input, c.output, c.count, type, op, comm_, c.stream);
    if (name == "reduce_scatter")
      return f_.reduce_scatter(c.input, c.output, c.count, type, op, comm_, c.stream);
    if (name == "reduce") return f_.reduce(c.input, c.output, c.count, type, op, c.root, comm_, c.stream);
    if (name == "broadcast") return f_.broadcast(c.input, c.output, c.count, type, c.root, comm_, c.stream);
    if (name == "all_gather") return f_.all_gather(c.input, c.output, c.count, type, comm_, c.stream);
    if (name == "all_to_all") return f_.all_to_all(c.input, c.output, c.count, type, comm_, c.stream);
    if (name == "gather") return f_.gather(c.input, c.output, c.count, type, c.root, comm_, c.stream);
    if (name == "scatter") return f_.scatter(c.input, c.output, c.count, type, c.root, comm_, c.stream);
    f_.group_start();
    f_.send(c.input, c.count, type, (rank_ + 1) % size_, comm_, c.stream);
    f_.recv(c.output, c.count, type, (rank_ + size_ - 1) % size_, comm_, c.stream);
    return f_.group_end();
  }

  const NcclFunctions f_;
  const int rank_, size_;
  const bool apart_;
  std::string name_;
  NcclFunctions::Comm comm_ = nullptr;
  std::map<DataType, int> operators_;  ///< PreMulSum, by type.
  std::vector<void*> handles_;
};

}  // namespace

std::unique_ptr<Contender> make_library(Communicator& ranks, const LibraryOptions& options) {
  return std::make_unique<Library>(ranks, options);
}

}  // namespace lockstep::bench
