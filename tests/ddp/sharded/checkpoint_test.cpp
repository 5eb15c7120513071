// Checkpoints on a real disk: what is saved by some ranks is loaded by others; an old one survives a failed
// save; what is missing, short, changed or of another model is named on every rank.
#include "lockstep/ddp/checkpoint.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>

#include "lib/net/fd.hpp"
#include "tests/ddp/sharded/checkpoint_world.hpp"
#include "tests/support/thrown_by.hpp"

namespace lockstep {
namespace {

namespace fs = std::filesystem;
using testing::Directory;
using testing::kRows;
using testing::Net;
using testing::on_ranks;
using testing::save;
using testing::thrown_by;

constexpr std::size_t kRowsOfMoreThanAPiece = 1'500;  // 6 MB, a piece being 4 MiB.

TEST(Checkpoint, IsLoadedByAnyNumberOfRanks) {
  Net expected;
  expected.fill(5);
  for (const bool shared : {true, false}) {
    for (const int writers : {1, 2, 3}) {
      const Directory directory;
      save(writers, directory, 5, shared);
      EXPECT_EQ(directory.files().size(), 1u + static_cast<std::size_t>(shared ? writers : 1));
      for (const int readers : {1, 2, 4}) {
        on_ranks(readers, "auto", [&](Communicator& communicator) {
          Net net;
          const CheckpointInfo info =
              load_checkpoint(communicator, directory.checkpoint(), slices_to_load(net.list));
          EXPECT_TRUE(net == expected);
          EXPECT_EQ(info.step, 12u);
          EXPECT_EQ(info.note, "{\"rate\": 0.1}");
          EXPECT_EQ(info.world_size, writers);
          EXPECT_EQ(info.bytes, kRows * 1'000 * 4 + 7 * 8 + 4u);
        });
      }
      EXPECT_EQ(read_checkpoint_info(directory.checkpoint()).step, 12u);
    }
  }
}

TEST(Checkpoint, MayHaveTensorsOfSeveralPieces) {
  const Directory directory;
  save(1, directory, 5, true, kRowsOfMoreThanAPiece);
  Net expected(kRowsOfMoreThanAPiece);
  expected.fill(5);
  on_ranks(2, "auto", [&](Communicator& communicator) {
    Net net(kRowsOfMoreThanAPiece);
    load_checkpoint(communicator, directory.checkpoint(), slices_to_load(net.list));
    EXPECT_TRUE(net == expected);
  });
}

/// Across the border of two ranks' files.
TEST(Checkpoint, ASliceIsReadAlone) {
  const Directory directory;
  save(3, directory, 0);
  on_ranks(1, "auto", [&](Communicator& communicator) {
    Net net;
    std::vector<TensorSlice> slices = slices_to_load(net.list);
    slices[0].first = 9'990;
    slices[0].count = 20;
    load_checkpoint(communicator, directory.checkpoint(), slices);
    for (std::size_t i = 0; i < 20; ++i) EXPECT_EQ(net.large[i], static_cast<float>(9'990 + i));
    EXPECT_EQ(net.large[20], 0.0f);
  });
}

TEST(Checkpoint, ReplacesTheOneBeforeAndClearsWhatAStoppedJobLeft) {
  const Directory directory;
  save(3, directory, 1);
  std::ofstream(directory.file("g9-rank0of3.bin.part")) << "unfinished";
  std::ofstream(directory.file("notes.txt")) << "not ours";
  save(2, directory, 2);
  EXPECT_EQ(directory.files(),
            (std::vector<std::string>{"g10-rank0of2.bin", "g10-rank1of2.bin", "manifest.json", "notes.txt"}));
}

TEST(Checkpoint, SurvivesASaveThatFails) {
  const Directory directory;
  save(2, directory, 1);
  const std::vector<std::string> before = directory.files();
  on_ranks(2, "auto", [&](Communicator& communicator) {
    Net net;
    net.fill(2);
    std::vector<TensorSlice> slices = slices_to_save(net.list, communicator);
    if (communicator.rank() == 1) slices[0].count -= 1;  // Nobody has the last element.
    const Error error =
        thrown_by([&] { save_checkpoint(communicator, directory.checkpoint(), slices, {.step = 13}); });
    EXPECT_NE(std::string(error.what()).find("lacks element 29999 of \"large\""), std::string::npos)
        << error.what();
    slices[0].count += 10;
    const Error outside =
        thrown_by([&] { save_checkpoint(communicator, directory.checkpoint(), slices, {.step = 13}); });
    EXPECT_EQ(outside.code(), ErrorCode::invalid_argument);
    const Error note = thrown_by([&] {
      save_checkpoint(communicator, directory.checkpoint(), slices_to_save(net.list, communicator),
                      {.step = 13, .note = std::string((1u << 20) + 1, 'n')});
    });
    EXPECT_NE(std::string(note.what()).find("the note has more than 1 MiB"), std::string::npos);
    load_checkpoint(communicator, directory.checkpoint(), slices_to_load(net.list));
    EXPECT_EQ(net.large[0], 1.0f);
  });
  EXPECT_EQ(directory.files(), before);
}

/// Every rank's file was on the disk by then.
TEST(Checkpoint, ThatCannotPutItsManifestInPlaceLeavesNothing) {
  const Directory directory;
  fs::create_directories(directory.file("manifest.json"));  // Where a file has to be.
  on_ranks(2, "auto", [&](Communicator& communicator) {
    Net net;
    const Error error = thrown_by([&] {
      save_checkpoint(communicator, directory.checkpoint(), slices_to_save(net.list, communicator),
                      {.step = 13});
    });
    EXPECT_EQ(error.culprit(), 0);
    EXPECT_NE(std::string(error.what()).find("cannot rename to"), std::string::npos) << error.what();
    communicator.barrier();  // Each has removed its own.
  });
  EXPECT_EQ(directory.files(), std::vector<std::string>{"manifest.json"});
}

/// Permissions, a disk or a server that does not answer: nothing is wrong with the checkpoint.
TEST(Checkpoint, WhatCannotBeLookedAtIsNeitherMissingNorDamaged) {
  for (const std::string file : {"manifest.json", "g1-rank0of2.bin"}) {
    const Directory directory;
    save(2, directory, 1);
    fs::remove(directory.file(file));
    fs::create_symlink(file, directory.file(file));  // Of itself.
    on_ranks(2, "auto", [&](Communicator& communicator) {
      const Net net;
      const Error error =
          thrown_by([&] { load_checkpoint(communicator, directory.checkpoint(), slices_to_load(net.list)); });
      EXPECT_EQ(error.code(), ErrorCode::system) << error.what();
      EXPECT_NE(std::string(error.what()).find("cannot read " + directory.file(file)), std::string::npos)
          << error.what();
    });
  }
}

/// What one has written the other one would remove.
TEST(Checkpoint, IsSavedByOneJobAtATime) {
  const Directory directory;
  save(2, directory, 1);
  {
    const internal::Fd lock(::open(directory.file("save.lock").c_str(), O_RDWR | O_CLOEXEC));
    ASSERT_EQ(::flock(lock.get(), LOCK_EX | LOCK_NB), 0);
    on_ranks(2, "auto", [&](Communicator& communicator) {
      const Net net;
      const Error error = thrown_by([&] {
        save_checkpoint(communicator, directory.checkpoint(), slices_to_save(net.list, communicator),
                        {.step = 13});
      });
      EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
      EXPECT_NE(std::string(error.what()).find("rank 0: another job is saving to this directory"),
                std::string::npos)
          << error.what();
    });
  }
  save(2, directory, 2);
}

TEST(Checkpoint, OfTwoJobsAtOnceOneIsWholeAndTheOtherIsTold) {
  const Directory directory;
  on_ranks(4, "auto", [&](Communicator& communicator) {
    auto job = communicator.split(communicator.rank() % 2, communicator.rank());
    Net net(300);
    for (int round = 0; round < 10; ++round) {
      net.fill(static_cast<float>(communicator.rank() % 2));
      communicator.barrier();
      std::int32_t saved = 1;
      try {
        save_checkpoint(*job, directory.checkpoint(), slices_to_save(net.list, *job), {});
      } catch (const Error& error) {
        EXPECT_NE(std::string(error.what()).find("another job is saving"), std::string::npos) << error.what();
        saved = 0;
      }
      communicator.all_reduce(&saved, &saved, 1, DataType::i32, ReduceOp::sum);
      EXPECT_GE(saved, 2) << "ranks of one job at least";
      load_checkpoint(communicator, directory.checkpoint(), slices_to_load(net.list));
      Net expected(300);
      expected.fill(net.scalar[0]);
      EXPECT_TRUE(net == expected) << "of one job and of no other";
    }
  });
}

TEST(Checkpoint, ADirectoryThatCannotBeMadeIsNamedOnEveryRank) {
  const Directory directory;
  std::ofstream(directory.checkpoint()) << "a file";
  on_ranks(2, "auto", [&](Communicator& communicator) {
    Net net;
    const Error error = thrown_by([&] {
      save_checkpoint(communicator, directory.checkpoint() + "/x", slices_to_save(net.list, communicator),
                      {});
    });
    EXPECT_EQ(error.code(), ErrorCode::system);
    EXPECT_EQ(error.culprit(), 0);
    EXPECT_NE(std::string(error.what()).find("rank 0: cannot make "), std::string::npos) << error.what();
    const Error nameless =
        thrown_by([&] { save_checkpoint(communicator, "", slices_to_save(net.list, communicator), {}); });
    EXPECT_NE(std::string(nameless.what()).find("the directory has no name"), std::string::npos)
        << nameless.what();
  });
}

/// Hosts that share no directory, or copies of one of which some are older.
TEST(Checkpoint, RanksWithDirectoriesOfTheirOwnAreFoundOut) {
  const Directory directories[2];
  const auto expect_refused_save = [&](int culprit, const std::string& text) {
    on_ranks(2, "auto", [&](Communicator& communicator) {
      Net net;
      const Error error = thrown_by([&] {
        save_checkpoint(communicator, directories[communicator.rank()].checkpoint(),
                        slices_to_save(net.list, communicator), {.step = 14});
      });
      EXPECT_EQ(error.culprit(), culprit);
      EXPECT_NE(std::string(error.what()).find(text), std::string::npos) << error.what();
    });
  };
  fs::create_directory(directories[0].checkpoint());
  expect_refused_save(1, " does not exist, and rank 0 has it; let all ranks save to one directory");
  for (int r = 0; r < 2; ++r) save(2, directories[r], 1);
  expect_refused_save(0, "g2-rank1of2.bin is missing; let all ranks save to one directory");
  save(2, directories[1], 2, true, kRows, 13);
  expect_refused_save(1, "g2-rank1of2.bin is there already, and rank 0 does not see it; let all ranks save");
  for (int r = 0; r < 2; ++r) {
    EXPECT_EQ(read_checkpoint_info(directories[r].checkpoint()).step, r == 0 ? 12u : 13u);
    EXPECT_EQ(directories[r].files().size(), 3u) << "what was there before still is, and nothing else";
  }
  on_ranks(2, "auto", [&](Communicator& communicator) {
    Net net;
    const Error error = thrown_by([&] {
      load_checkpoint(communicator, directories[communicator.rank()].checkpoint(), slices_to_load(net.list));
    });
    EXPECT_EQ(error.code(), ErrorCode::mismatch);
    EXPECT_EQ(error.culprit(), 1);
    EXPECT_NE(std::string(error.what()).find("rank 1 reads another checkpoint than rank 0"),
              std::string::npos)
        << error.what();
    EXPECT_EQ(net.large[1], 0.0f) << "nothing is loaded";
  });
}

TEST(Checkpoint, WhatIsNoFileIsNotReadFrom) {
  const Directory directory;
  fs::create_directory(directory.checkpoint());
  ASSERT_EQ(::mkfifo(directory.file("manifest.json").c_str(), 0600), 0);
  EXPECT_NE(std::string(thrown_by([&] { read_checkpoint_info(directory.checkpoint()); }).what())
                .find("manifest.json is not a file"),
            std::string::npos);
}

TEST(Checkpoint, WhatOthersPutInItsWayIsNotWrittenThrough) {
  const Directory directory;
  save(1, directory, 1);
  const std::string mine = directory.file("mine"), unborn = directory.file("unborn");
  const std::string unfinished = directory.file("manifest.json.part");
  std::ofstream(mine) << "of value";
  const auto expect_refused = [&] {
    on_ranks(1, "auto", [&](Communicator& communicator) {
      Net net;
      const Error error = thrown_by([&] {
        save_checkpoint(communicator, directory.checkpoint(), slices_to_save(net.list, communicator), {});
      });
      EXPECT_NE(std::string(error.what()).find("cannot write " + unfinished), std::string::npos)
          << error.what();
    });
    EXPECT_EQ(read_checkpoint_info(directory.checkpoint()).step, 12u) << "the one before is gone";
  };
  fs::remove(directory.file("save.lock"));
  fs::create_symlink(unborn, directory.file("save.lock"));
  fs::create_symlink(mine, unfinished);
  expect_refused();
  EXPECT_EQ(fs::file_size(mine), 8u);
  EXPECT_FALSE(fs::exists(unborn));
  fs::remove(unfinished);
  ASSERT_EQ(::mkfifo(unfinished.c_str(), 0600), 0);
  expect_refused();
}

/// Every rank's error of loading what `damage` has been done to.
void expect_refused(ErrorCode code, const std::string& text,
                    const std::function<void(const Directory&)>& damage,
                    const std::function<void(std::vector<TensorSlice>&)>& change = {}) {
  const Directory directory;
  save(2, directory, 3);
  damage(directory);
  on_ranks(3, "auto", [&](Communicator& communicator) {
    Net net;
    std::vector<TensorSlice> slices = slices_to_load(net.list);
    if (change) change(slices);
    const Error error = thrown_by([&] { load_checkpoint(communicator, directory.checkpoint(), slices); });
    EXPECT_EQ(error.code(), code) << error.what();
    EXPECT_NE(std::string(error.what()).find(text), std::string::npos) << error.what();
    EXPECT_NE(std::string(error.what()).find("load_checkpoint from " + directory.checkpoint()),
              std::string::npos);
  });
}

TEST(Checkpoint, DamageIsNamed) {
  expect_refused(ErrorCode::invalid_argument, "g1-rank1of2.bin is missing; the checkpoint is damaged",
                 [](const Directory& d) { fs::remove(d.file("g1-rank1of2.bin")); });
  expect_refused(ErrorCode::invalid_argument, "g1-rank0of2.bin has 1000 bytes instead of 600",
                 [](const Directory& d) { fs::resize_file(d.file("g1-rank0of2.bin"), 1'000); });
  expect_refused(
      ErrorCode::invalid_argument, "of \"large\" do not have their checksum", [](const Directory& d) {
        std::fstream file(d.file("g1-rank1of2.bin"), std::ios::in | std::ios::out | std::ios::binary);
        file.seekp(1'234);
        file.put('\x55');
      });
  expect_refused(ErrorCode::invalid_argument, "; the checkpoint is damaged, use another one",
                 [](const Directory& d) {
                   const std::string manifest = d.file("manifest.json");
                   fs::resize_file(manifest, fs::file_size(manifest) / 2);
                 });
  expect_refused(ErrorCode::invalid_argument, "there is no complete checkpoint",
                 [](const Directory& d) { fs::remove(d.file("manifest.json")); });
}

TEST(Checkpoint, AnotherModelIsNamed) {
  const auto nothing = [](const Directory&) {};
  expect_refused(ErrorCode::mismatch,
                 "the checkpoint has \"large\" f32 [30, 1000], the model \"large\" f32 [1000, 30]", nothing,
                 [](auto& slices) { std::swap(slices[0].shape[0], slices[0].shape[1]); });
  expect_refused(ErrorCode::mismatch, "the model has \"fc9\" f64 [7], which the checkpoint lacks", nothing,
                 [](auto& slices) { slices[1].name = "fc9"; });
  expect_refused(ErrorCode::mismatch, "the checkpoint has \"empty\" f32 [0, 3], which the model lacks",
                 nothing, [](auto& slices) { slices.pop_back(); });
}

/// As many as there were ranks: a process may not have as many descriptors.
TEST(Checkpoint, OfManyFilesIsReadWithFewDescriptors) {
  const Directory directory;
  save(16, directory, 1);
  on_ranks(1, "auto", [&](Communicator& communicator) {
    Net net, expected;
    expected.fill(1);
    rlimit before;
    ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
    const internal::Fd lowest(::dup(0));
    rlimit few = before;
    few.rlim_cur = static_cast<rlim_t>(lowest.get()) + 8;
    ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &few), 0);
    EXPECT_NO_THROW(load_checkpoint(communicator, directory.checkpoint(), slices_to_load(net.list)));
    ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
    EXPECT_TRUE(net == expected);
  });
}

}  // namespace
}  // namespace lockstep
