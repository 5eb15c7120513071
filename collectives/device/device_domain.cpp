#include "collectives/device/device_domain.hpp"

#include <utility>

namespace lockstep::internal {
namespace {

std::vector<MemberControl*> controls_of(Domain& host) {
  std::vector<MemberControl*> controls;
  for (int member = 0; member < host.size(); ++member) controls.push_back(&host.control(member));
  return controls;
}

class DeviceTransport final : public Transport {
 public:
  DeviceTransport(std::unique_ptr<Transport> host, std::vector<std::byte*> staging, std::size_t staging_bytes,
                  SharedBuffers& buffers)
      : host_(std::move(host)), domain_(*host_->domain(), std::move(staging), staging_bytes, buffers) {}

  std::string_view name() const override { return "device"; }
  Result<Link*> link(int, Channel) override {
    return Status(ErrorCode::internal, "a domain of devices has no links");
  }
  Status service() override { return {}; }
  Link* existing_link(int, Channel) override { return nullptr; }
  void append_poll_entries(std::vector<pollfd>&) override {}
  Domain* domain() override { return &domain_; }
  void close() override { host_->close(); }

 private:
  const std::unique_ptr<Transport> host_;
  DeviceDomain domain_;
};

}  // namespace

DeviceDomain::DeviceDomain(Domain& host, std::vector<std::byte*> staging, std::size_t staging_bytes,
                           SharedBuffers& buffers)
    : Domain(host.rank(), controls_of(host), staging_bytes),
      host_(host),
      staging_(std::move(staging)),
      buffers_(buffers) {}

std::unique_ptr<Transport> make_device_transport(std::unique_ptr<Transport> host,
                                                 std::vector<std::byte*> staging, std::size_t staging_bytes,
                                                 SharedBuffers& buffers) {
  return std::make_unique<DeviceTransport>(std::move(host), std::move(staging), staging_bytes, buffers);
}

}  // namespace lockstep::internal
