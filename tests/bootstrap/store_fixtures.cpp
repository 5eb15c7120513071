#include "tests/bootstrap/store_fixtures.hpp"

#include <gtest/gtest.h>

#include "lib/bootstrap/file_store.hpp"
#include "lib/bootstrap/memory_store.hpp"
#include "lib/bootstrap/store_server.hpp"
#include "lib/bootstrap/tcp_store.hpp"
#include "tests/support/temporary_directory.hpp"

namespace lockstep::internal {
namespace {

class MemoryMaker final : public StoreMaker {
 public:
  std::unique_ptr<Store> open() override { return open_memory_store("test"); }
};

class FileMaker final : public StoreMaker {
 public:
  ~FileMaker() override {
    // The last store took its file with it.
    EXPECT_EQ(directory_.entries(), 0u);
  }
  std::unique_ptr<Store> open() override {
    auto store = open_file_store(directory_.path() + "/store", kSoon, real_env());
    EXPECT_TRUE(store.ok()) << store.status().message();
    return std::move(*store);
  }

 private:
  TemporaryDirectory directory_;
};

class TcpMaker final : public StoreMaker {
 public:
  TcpMaker() {
    StoreServerOptions options;
    options.key = key_;
    auto server = StoreServer::start(std::move(options));
    EXPECT_TRUE(server.ok()) << server.status().message();
    server_ = std::move(*server);
  }
  std::unique_ptr<Store> open() override {
    StoreClientOptions options;
    options.server = server_->address();
    options.key = key_;
    auto store = open_tcp_store(std::move(options), std::chrono::seconds(20), real_env());
    EXPECT_TRUE(store.ok()) << store.status().message();
    return std::move(*store);
  }

 private:
  const HandshakeKey key_ = make_handshake_key("test", "secret");
  std::unique_ptr<StoreServer> server_;
};

}  // namespace

std::vector<std::string> store_kinds() { return {"memory", "file", "tcp"}; }

std::unique_ptr<StoreMaker> make_store_maker(const std::string& kind) {
  if (kind == "memory") return std::make_unique<MemoryMaker>();
  if (kind == "file") return std::make_unique<FileMaker>();
  return std::make_unique<TcpMaker>();
}

}  // namespace lockstep::internal
