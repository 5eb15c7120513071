// The part of NCCL's interface that is measured, taken from a library at run time. Written down here, because
// lockstep-bench is built where no nccl.h is.
#pragma once

#include <dlfcn.h>

#include <array>
#include <cstddef>
#include <stdexcept>
#include <string>
#include <type_traits>

namespace lockstep::bench {

struct NcclFunctions {
  using Result = int;  ///< 0 is success.
  using Comm = void*;
  struct UniqueId {
    std::array<char, 128> bytes;
  };

  const char* (*own_version)();  ///< Null but for lockstep's.
  Result (*get_version)(int*);
  Result (*get_unique_id)(UniqueId*);
  const char* (*get_error_string)(Result);
  const char* (*get_last_error)(Comm);
  Result (*init_rank)(Comm*, int ranks, UniqueId, int rank);
  Result (*destroy)(Comm);
  Result (*abort)(Comm);
  Result (*async_error)(Comm, Result*);
  Result (*register_buffer)(Comm, void*, std::size_t, void** handle);
  Result (*deregister)(Comm, void* handle);
  Result (*create_premul_sum)(int* op, void* scalar, int type, int residence, Comm);
  Result (*destroy_op)(int op, Comm);
  Result (*group_start)();
  Result (*group_end)();

  using Plain = Result (*)(const void*, void*, std::size_t, int type, Comm, void* stream);
  using Rooted = Result (*)(const void*, void*, std::size_t, int type, int root, Comm, void* stream);
  using Reducing = Result (*)(const void*, void*, std::size_t, int type, int op, Comm, void* stream);
  Reducing all_reduce, reduce_scatter;
  Result (*reduce)(const void*, void*, std::size_t, int type, int op, int root, Comm, void* stream);
  Rooted broadcast;
  Plain all_gather;
  Plain all_to_all;        ///< Null before 2.28.
  Rooted gather, scatter;  ///< Null before 2.28.
  Result (*send)(const void*, std::size_t, int type, int peer, Comm, void* stream);
  Result (*recv)(void*, std::size_t, int type, int peer, Comm, void* stream);
};

/// Throws std::runtime_error naming what is missing. The library is never unloaded.
inline NcclFunctions load_nccl(const std::string& path) {
  void* const library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) throw std::runtime_error("--lib: " + std::string(dlerror()));
  NcclFunctions f{};
  const auto get = [&](auto& function, const char* name, bool needed = true) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(library, name));
    if (function == nullptr && needed) throw std::runtime_error("--lib " + path + " has no " + name);
  };
  get(f.own_version, "lockstep_nccl_version", false);
  get(f.get_version, "ncclGetVersion");
  get(f.get_unique_id, "ncclGetUniqueId");
  get(f.get_error_string, "ncclGetErrorString");
  get(f.get_last_error, "ncclGetLastError");
  get(f.init_rank, "ncclCommInitRank");
  get(f.destroy, "ncclCommDestroy");
  get(f.abort, "ncclCommAbort");
  get(f.async_error, "ncclCommGetAsyncError");
  get(f.register_buffer, "ncclCommRegister");
  get(f.deregister, "ncclCommDeregister");
  get(f.create_premul_sum, "ncclRedOpCreatePreMulSum");
  get(f.destroy_op, "ncclRedOpDestroy");
  get(f.group_start, "ncclGroupStart");
  get(f.group_end, "ncclGroupEnd");
  get(f.all_reduce, "ncclAllReduce");
  get(f.reduce_scatter, "ncclReduceScatter");
  get(f.reduce, "ncclReduce");
  get(f.broadcast, "ncclBroadcast");
  get(f.all_gather, "ncclAllGather");
  get(f.all_to_all, "ncclAlltoAll", false);
  get(f.gather, "ncclGather", false);
  get(f.scatter, "ncclScatter", false);
  get(f.send, "ncclSend");
  get(f.recv, "ncclRecv");
  return f;
}

}  // namespace lockstep::bench
