#include "gateway/journal.hpp"

#include "gateway/journal_format.hpp"
#include "tests/gateway/peers.hpp"
#include "tests/gateway/temporary_folder.hpp"

#include <gtest/gtest.h>

#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <fstream>
#include <thread>

namespace millrace {
namespace {

using std::filesystem::path;

class JournalTest : public testing::Test {
protected:
  JournalTest() { options_.folder = top_ / "log"; }

  static JournalHead head(uint8_t name) {
    JournalHead head;
    head.principal = "somebody";
    head.fingerprint = "model";
    head.generate.request = test::stream(name);
    head.generate.prompt = "Once upon a time";
    head.generate.sampling.seed = name;
    return head;
  }
  static zmq::message_t event(std::string_view text) { return {text.data(), text.size()}; }

  static std::vector<RecoveredStream> recover(Journal& journal) {
    std::vector<RecoveredStream> streams;
    journal.recover([&](RecoveredStream stream) { streams.push_back(std::move(stream)); });
    return streams;
  }
  std::vector<RecoveredStream> recover() const {
    Journal journal(options_);
    return recover(journal);
  }

  path file(uint8_t name) const { return options_.folder / to_hex(test::stream(name)); }
  std::string contents(uint8_t name) const {
    std::ifstream stream(file(name), std::ios::binary);
    return {std::istreambuf_iterator<char>(stream), {}};
  }
  void overwrite(uint8_t name, std::string_view bytes) const {
    std::ofstream(file(name), std::ios::binary | std::ios::trunc) << bytes;
  }
  static mode_t mode(const path& path) {
    struct stat status {};
    return ::stat(path.c_str(), &status) == 0 ? status.st_mode & 07777 : 0;
  }

  const test::TemporaryFolder temporary_;
  const path top_ = temporary_.path;
  JournalOptions options_;
};

using Events = std::vector<std::string>;
constexpr uint8_t kNames[] = {1, 2, 3};

TEST_F(JournalTest, GivesBackWhatWasSaid) {
  {
    Journal journal(options_);
    ASSERT_FALSE(journal.begin(head(1)));
    ASSERT_FALSE(journal.begin(head(2)));
    journal.append(test::stream(1), event("a"));
    journal.append(test::stream(2), event("x"));
    journal.append(test::stream(1), event("b"));
  }

  const auto streams = recover();

  ASSERT_EQ(streams.size(), 2u);
  const RecoveredStream& first = streams[streams[0].head.generate.request == test::stream(1) ? 0 : 1];
  EXPECT_EQ(first.head.principal, "somebody");
  EXPECT_EQ(first.head.generate.sampling.seed, 1);
  EXPECT_EQ(first.events, (Events{"a", "b"}));
  EXPECT_LT(std::chrono::abs(std::chrono::system_clock::now() - first.touched), std::chrono::minutes(1));
}

TEST_F(JournalTest, GoesOnInTheFilesOfAnEarlierProcess) {
  for (const char* text : {"a", "b", "c"}) {
    Journal journal(options_);
    const bool fresh = recover(journal).empty();
    ASSERT_FALSE(fresh && journal.begin(head(1)));
    journal.append(test::stream(1), event(text));
  }

  EXPECT_EQ(recover().at(0).events, (Events{"a", "b", "c"}));
}

TEST_F(JournalTest, HasAStreamOnDiskOnceItHasBegun) {
  Journal journal(options_);

  ASSERT_FALSE(journal.begin(head(1)));

  EXPECT_EQ(contents(1), encode_journal_head(head(1)));
}

TEST_F(JournalTest, LosesNothingThatWasWrittenWhenTheProcessIsKilled) {
  int told[2];
  ASSERT_EQ(pipe(told), 0);
  const pid_t child = fork();
  if (child == 0) {
    Journal journal(options_);
    journal.begin(head(1));
    for (int i = 0; i < 10'000; ++i)
      journal.append(test::stream(1), event("event " + std::to_string(i)));
    journal.flush();
    [[maybe_unused]] const auto written = write(told[1], "x", 1);
    pause();
  }
  char byte;
  ASSERT_EQ(read(told[0], &byte, 1), 1);
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  close(told[0]);
  close(told[1]);

  const auto streams = recover();

  ASSERT_EQ(streams.size(), 1u);
  ASSERT_EQ(streams[0].events.size(), 10'000u);
  EXPECT_EQ(streams[0].events.back(), "event 9999");
}

TEST_F(JournalTest, KeepsEveryoneElseOut) {
  Journal journal(options_);
  ASSERT_FALSE(journal.begin(head(1)));

  EXPECT_EQ(mode(options_.folder), 0700u);
  EXPECT_EQ(mode(file(1)), 0600u);
  EXPECT_EQ(mode(options_.folder / "lock"), 0600u);
}

TEST_F(JournalTest, RefusesAFolderThatOthersMayEnter) {
  std::filesystem::create_directory(options_.folder);
  chmod(options_.folder.c_str(), 0750);

  try {
    Journal journal(options_);
    FAIL();
  } catch (const std::system_error& error) {
    EXPECT_NE(std::string(error.what()).find(options_.folder.string()), std::string::npos);
    EXPECT_NE(std::string(error.what()).find("chmod 700"), std::string::npos);
  }
}

TEST_F(JournalTest, RefusesAFolderThatAnotherServerUses) {
  Journal journal(options_);

  EXPECT_THROW(Journal{options_}, std::system_error);
}

TEST_F(JournalTest, RefusesWhatIsNoFolder) {
  std::ofstream(options_.folder) << "a file";
  EXPECT_THROW(Journal{options_}, std::system_error);

  options_.folder = top_ / "no" / "such" / "place";
  EXPECT_THROW(Journal{options_}, std::system_error);
}

TEST_F(JournalTest, ForgetsAStream) {
  Journal journal(options_);
  ASSERT_FALSE(journal.begin(head(1)));
  journal.append(test::stream(1), event("a"));

  journal.forget(test::stream(1));
  journal.append(test::stream(1), event("late"));
  journal.flush();

  EXPECT_FALSE(exists(file(1)));
  EXPECT_EQ(journal.dropped(), 1u); // the late one
}

TEST_F(JournalTest, BeginsAnewUnderAnIdThatWasForgotten) {
  {
    Journal journal(options_);
    ASSERT_FALSE(journal.begin(head(1)));
    journal.append(test::stream(1), event("old"));
    journal.forget(test::stream(1));
    ASSERT_FALSE(journal.begin(head(1)));
    journal.append(test::stream(1), event("new"));
  }

  EXPECT_EQ(recover().at(0).events, Events{"new"});
}

TEST_F(JournalTest, ForgetsWhatWasRecovered) {
  { ASSERT_FALSE(Journal(options_).begin(head(1))); }
  {
    Journal journal(options_);
    journal.recover([&](const RecoveredStream& stream) { journal.forget(stream.head.generate.request); });
  }

  EXPECT_FALSE(exists(file(1)));
}

TEST_F(JournalTest, DropsADamagedTailAndGoesOnBeforeIt) {
  {
    Journal journal(options_);
    ASSERT_FALSE(journal.begin(head(1)));
    journal.append(test::stream(1), event("a"));
    journal.append(test::stream(1), event("b"));
  }
  overwrite(1, contents(1).substr(0, contents(1).size() - 1));
  {
    Journal journal(options_);
    ASSERT_EQ(recover(journal).at(0).events, Events{"a"});
    journal.append(test::stream(1), event("c"));
  }

  EXPECT_EQ(recover().at(0).events, (Events{"a", "c"}));
}

TEST_F(JournalTest, SetsFilesAsideThatAreNoJournals) {
  {
    Journal journal(options_);
    for (const uint8_t name : kNames)
      ASSERT_FALSE(journal.begin(head(name)));
  }
  overwrite(1, "");
  overwrite(2, std::string(100'000, '\xFF'));
  overwrite(3, encode_journal_head(head(4))); // of another stream

  EXPECT_TRUE(recover().empty());

  for (const uint8_t name : kNames) {
    EXPECT_FALSE(exists(file(name)));
    EXPECT_TRUE(exists(path(file(name)) += ".bad"));
  }
}

TEST_F(JournalTest, FollowsNoLinksAndWaitsForNoFifo) {
  { Journal journal(options_); }
  const path outside = top_ / "outside";
  std::ofstream(outside, std::ios::binary) << encode_journal_head(head(1)) << "tail";
  const auto size = file_size(outside);
  create_symlink(outside, file(1));
  ASSERT_EQ(mkfifo(file(2).c_str(), 0600), 0);
  create_directory(file(3));

  EXPECT_TRUE(recover().empty());

  EXPECT_EQ(file_size(outside), size); // its tail was not dropped
  Journal journal(options_);
  create_symlink(outside, file(4));
  ASSERT_FALSE(journal.begin(head(4)));
  EXPECT_EQ(file_size(outside), size);
  EXPECT_FALSE(is_symlink(file(4)));
}

TEST_F(JournalTest, LeavesOtherFilesAlone) {
  { Journal journal(options_); }
  const auto upper = options_.folder / "ABABABABABABABABABABABABABABABAB";
  std::ofstream(options_.folder / "notes.txt") << "mine";
  std::ofstream(upper) << "mine";
  std::ofstream(path(file(1)) += ".new") << "half a head";

  EXPECT_TRUE(recover().empty());

  EXPECT_TRUE(exists(options_.folder / "notes.txt"));
  EXPECT_TRUE(exists(upper));
  EXPECT_FALSE(exists(path(file(1)) += ".new")); // ours, of a request that was never admitted
}

TEST_F(JournalTest, RecoversTheLongestSilentFirst) {
  {
    Journal journal(options_);
    for (const uint8_t name : kNames)
      ASSERT_FALSE(journal.begin(head(name)));
  }
  const auto now = std::filesystem::file_time_type::clock::now();
  last_write_time(file(2), now - std::chrono::hours(2));
  last_write_time(file(3), now - std::chrono::hours(1));

  const auto streams = recover();

  ASSERT_EQ(streams.size(), 3u);
  EXPECT_EQ(streams[0].head.generate.request, test::stream(2));
  EXPECT_EQ(streams[1].head.generate.request, test::stream(3));
  EXPECT_EQ(streams[2].head.generate.request, test::stream(1));
}

TEST_F(JournalTest, StopsAtTheLimitOfAFile) {
  options_.max_file_bytes = 2'000;
  options_.linger = std::chrono::milliseconds(0);
  {
    Journal journal(options_);
    ASSERT_FALSE(journal.begin(head(1)));
    for (int i = 0; i < 100; ++i) {
      journal.append(test::stream(1), event(std::to_string(1'000 + i)));
      journal.flush();
    }
    EXPECT_GT(journal.dropped(), 0u);
  }

  EXPECT_LE(file_size(file(1)), 2'000u);
  const auto events = recover().at(0).events;
  EXPECT_GT(events.size(), 10u);
  for (size_t i = 0; i < events.size(); ++i) // a beginning, without holes
    EXPECT_EQ(events[i], std::to_string(1'000 + i));
}

TEST_F(JournalTest, ReadsNoMoreOfAFileThanItsLimit) {
  {
    Journal journal(options_);
    ASSERT_FALSE(journal.begin(head(1)));
    for (int i = 0; i < 100; ++i)
      journal.append(test::stream(1), event(std::string(100, 'x')));
  }
  options_.max_file_bytes = 2'000;

  EXPECT_LT(recover().at(0).events.size(), 20u);
}

TEST_F(JournalTest, BeginsNothingBeyondTheLimitOfAllFiles) {
  options_.max_total_bytes = 2'000;
  Journal journal(options_);

  uint8_t name = 1;
  std::optional<Failure> failure;
  while (name < 10 && !(failure = journal.begin(head(name))))
    ++name;
  ASSERT_GT(name, 1);
  ASSERT_TRUE(failure);
  EXPECT_EQ(failure->code, Error::busy);
  EXPECT_GT(failure->retry_after_ms, 0);
  EXPECT_FALSE(exists(file(name)));
  journal.forget(test::stream(1));
  journal.flush();

  EXPECT_FALSE(journal.begin(head(name)));
}

TEST_F(JournalTest, DropsTheRestOfAStreamThatOverflowsTheQueue) {
  options_.max_queued_bytes = 10'000;
  {
    Journal journal(options_);
    ASSERT_FALSE(journal.begin(head(1)));
    ASSERT_FALSE(journal.begin(head(2)));
    journal.append(test::stream(1), event("a"));
    journal.append(test::stream(1), event(std::string(20'000, 'x')));
    journal.append(test::stream(1), event("b"));
    journal.append(test::stream(2), event("a"));
    journal.flush();
    journal.append(test::stream(1), event("c"));
    journal.append(test::stream(2), event("b"));
    journal.flush();
    EXPECT_EQ(journal.dropped(), 3u);
  }

  for (const RecoveredStream& stream : recover())
    EXPECT_EQ(stream.events,
              stream.head.generate.request == test::stream(1) ? Events{"a"} : (Events{"a", "b"}));
}

TEST_F(JournalTest, RefusesAndDropsWhileTheDiskIsFull) {
  // A limit on file sizes stands in for a full disk: write() takes a part and then says EFBIG.
  const pid_t child = fork();
  if (child == 0) {
    std::signal(SIGXFSZ, SIG_IGN);
    Journal journal(options_);
    bool good = !journal.begin(head(1));
    const rlimit limit{4'096, RLIM_INFINITY};
    setrlimit(RLIMIT_FSIZE, &limit);
    for (int i = 0; i < 1'000; ++i) {
      journal.append(test::stream(1), event("event " + std::to_string(i)));
      if (i % 10 == 9)
        journal.flush();
    }
    JournalHead large = head(2);
    large.generate.prompt->assign(5'000, 'x');
    const auto failure = journal.begin(large);
    good = good && failure && failure->code == Error::internal;
    good = good && journal.dropped() > 0 && !journal.begin(head(3)); // it goes on with what fits
    _exit(good ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status));
  ASSERT_EQ(WEXITSTATUS(status), 0);

  const auto streams = recover();

  ASSERT_EQ(streams.size(), 2u);
  const auto& events = streams[streams[0].head.generate.request == test::stream(1) ? 0 : 1].events;
  EXPECT_GT(events.size(), 10u);
  for (size_t i = 0; i < events.size(); ++i)
    EXPECT_EQ(events[i], "event " + std::to_string(i));
  EXPECT_FALSE(exists(file(2)));
  EXPECT_FALSE(exists(path(file(2)) += ".new"));
}

TEST_F(JournalTest, WritesMoreStreamsThanItKeepsFilesOpen) {
  constexpr int kStreams = 600;
  const auto name = [](int i) {
    StreamId id{};
    id.bytes[0] = static_cast<uint8_t>(i);
    id.bytes[1] = static_cast<uint8_t>(i >> 8);
    return id;
  };
  {
    Journal journal(options_);
    for (int i = 0; i < kStreams; ++i) {
      JournalHead one = head(1);
      one.generate.request = name(i);
      ASSERT_FALSE(journal.begin(one));
    }
    for (const char* text : {"a", "b", "c"})
      for (int i = 0; i < kStreams; ++i)
        journal.append(name(i), event(text));
  }

  const auto streams = recover();

  ASSERT_EQ(streams.size(), static_cast<size_t>(kStreams));
  for (const RecoveredStream& stream : streams)
    ASSERT_EQ(stream.events, (Events{"a", "b", "c"}));
}

TEST_F(JournalTest, KeepsTheOrderOfEachOfManyThreads) {
  options_.linger = std::chrono::milliseconds(0);
  {
    Journal journal(options_);
    std::vector<std::thread> threads;
    for (uint8_t name = 1; name <= 4; ++name)
      threads.emplace_back([&, name] {
        ASSERT_FALSE(journal.begin(head(name)));
        for (int i = 0; i < 5'000; ++i)
          journal.append(test::stream(name), event(std::to_string(i)));
        if (name == 4)
          journal.forget(test::stream(name));
      });
    for (std::thread& thread : threads)
      thread.join();
  }

  const auto streams = recover();

  ASSERT_EQ(streams.size(), 3u);
  for (const RecoveredStream& stream : streams) {
    ASSERT_EQ(stream.events.size(), 5'000u);
    for (int i = 0; i < 5'000; ++i)
      ASSERT_EQ(stream.events[static_cast<size_t>(i)], std::to_string(i));
  }
}

TEST_F(JournalTest, WaitsForTheDiskIfAsked) {
  options_.sync = true;
  {
    Journal journal(options_);
    ASSERT_FALSE(journal.begin(head(1)));
    journal.append(test::stream(1), event("a"));
  }

  EXPECT_EQ(recover().at(0).events, Events{"a"});
}

} // namespace
} // namespace millrace
