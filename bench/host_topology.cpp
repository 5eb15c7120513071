#include "bench/host_topology.hpp"

#include <sys/utsname.h>

#include <set>

#include "lib/base/core_set.hpp"
#include "lib/base/machine.hpp"
#include "lib/net/interfaces.hpp"
#ifdef LOCKSTEP_HAVE_HWLOC
#include <hwloc.h>
#endif

namespace lockstep::bench {
namespace {

#ifdef LOCKSTEP_HAVE_HWLOC

hwloc_topology_t load_topology() {
  hwloc_topology_t topology = nullptr;
  if (hwloc_topology_init(&topology) != 0) return nullptr;
  hwloc_topology_set_io_types_filter(topology, HWLOC_TYPE_FILTER_KEEP_IMPORTANT);
  if (hwloc_topology_load(topology) == 0) return topology;
  hwloc_topology_destroy(topology);
  return nullptr;
}

/// This host, or null where hwloc cannot tell. Kept until the process ends: destroying the last topology
/// unloads hwloc's plugins, and the one for PCI then loses the table of names that it has read.
hwloc_topology_t host_topology() {
  static const hwloc_topology_t topology = load_topology();
  return topology;
}

std::string list_of(hwloc_const_cpuset_t cores) {
  char text[256];
  hwloc_bitmap_list_snprintf(text, sizeof text, cores);
  return text;
}

std::string mebibytes(std::uint64_t bytes) { return std::to_string(bytes >> 20) + " MiB"; }

std::string groups_of(hwloc_topology_t topology) {
  std::string text;
  for (hwloc_obj_t node = nullptr;
       (node = hwloc_get_next_obj_by_type(topology, HWLOC_OBJ_NUMANODE, node)) != nullptr;) {
    text += "  NUMA node " + std::to_string(node->os_index) + ": cores " + list_of(node->cpuset) + ", " +
            mebibytes(node->attr->numanode.local_memory) + "\n";
  }
  for (hwloc_obj_t cache = nullptr;
       (cache = hwloc_get_next_obj_by_type(topology, HWLOC_OBJ_L3CACHE, cache)) != nullptr;) {
    text += "  L3 group " + std::to_string(cache->logical_index) + ": cores " + list_of(cache->cpuset) +
            ", " + mebibytes(cache->attr->cache.size) + "\n";
  }
  return text + "  cores: " + std::to_string(hwloc_get_nbobjs_by_type(topology, HWLOC_OBJ_CORE)) + " of " +
         std::to_string(hwloc_get_nbobjs_by_type(topology, HWLOC_OBJ_PU)) + " hardware threads, " +
         std::to_string(internal::allowed_cores().count()) + " for this process\n";
}

/// Near which cores an interface is.
std::string locality_of(hwloc_topology_t topology, const std::string& interface) {
  for (hwloc_obj_t device = nullptr; (device = hwloc_get_next_osdev(topology, device)) != nullptr;) {
    if (device->name == nullptr || interface != device->name) continue;
    const hwloc_obj_t near = hwloc_get_non_io_ancestor_obj(topology, device);
    return near == nullptr ? "of unknown place" : "near cores " + list_of(near->cpuset);
  }
  return "virtual";
}

#endif

std::string speed_text(std::int64_t megabits) {
  return megabits > 0 ? std::to_string(megabits) + " Mbit/s" : "speed unknown";
}

std::string interface_line(const internal::InterfaceAddress& one, const std::string& locality, bool used) {
  return "  " + std::string(used ? "*" : " ") + " " + one.name + " " + one.address + ", " +
         speed_text(one.megabits) + (one.loopback ? ", loopback" : locality) + "\n";
}

}  // namespace

std::string describe_host() {
  utsname system{};
  uname(&system);
  std::string text = std::string(system.nodename) + ": " + internal::processor_name() + ", " +
                     system.machine + ", kernel " + system.release + "\n";
#ifdef LOCKSTEP_HAVE_HWLOC
  const hwloc_topology_t topology = host_topology();
  text += topology ? groups_of(topology) : std::string("  hwloc cannot read this machine\n");
#else
  text += "  NUMA nodes, cache groups and the place of interfaces are not known: built without hwloc\n";
#endif
  const auto all = internal::interface_addresses();
  all.status().throw_if_error();
  auto usable = internal::usable_interfaces(all.value(), internal::interface_filter_from_environment());
  std::set<std::string> used;
  if (usable.ok()) {
    for (const auto& one : *usable) used.insert(one.name + one.address);
  }
  text += "  interfaces (*: other hosts are told of it)\n";
  for (const auto& one : all.value()) {
    std::string locality;
#ifdef LOCKSTEP_HAVE_HWLOC
    if (topology) locality = ", " + locality_of(topology, one.name);
#endif
    text += interface_line(one, locality, used.contains(one.name + one.address));
  }
  return text;
}

}  // namespace lockstep::bench
