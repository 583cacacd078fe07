#include "kernels/thread_pool.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <ctime>
#include <mutex>
#include <set>
#include <stdexcept>
#include <thread>
#include <vector>

namespace millrace {
namespace {

TEST(ThreadPool, RunsEachTaskOnce) {
  for (int threads : {1, 2, 3, 8}) {
    ThreadPool pool{threads};
    EXPECT_EQ(pool.size(), threads);
    for (int n : {0, 1, 2, 3, 7, 64, 1000}) {
      std::vector<std::atomic<int>> calls(n);
      pool.run(n, [&](int i, int thread) {
        EXPECT_GE(thread, 0);
        EXPECT_LT(thread, threads);
        ++calls[size_t(i)];
      });
      for (auto& c : calls)
        EXPECT_EQ(c, 1);
    }
  }
}

TEST(ThreadPool, ShowsTheCallerWhatTasksWrote) {
  ThreadPool pool{3};
  std::vector<int> out(5);
  int64_t sum = 0;
  for (int loop = 0; loop < 20'000; ++loop) {
    pool.run(int(out.size()), [&](int i, int) { out[size_t(i)] = loop + i; });
    for (size_t i = 0; i < out.size(); ++i)
      ASSERT_EQ(out[i], loop + int(i));
    sum += out[0];
  }
  EXPECT_EQ(sum, int64_t(20'000) * 19'999 / 2);
}

TEST(ThreadPool, UsesItsWorkers) {
  ThreadPool pool{3};
  std::atomic<int> arrived = 0;
  std::set<int> seen;
  std::mutex mutex;

  pool.run(3, [&](int, int thread) {
    ++arrived;
    while (arrived < 3)
      std::this_thread::yield(); // each task holds its thread until all three run
    std::lock_guard lock{mutex};
    seen.insert(thread);
  });

  EXPECT_EQ(seen, (std::set{0, 1, 2}));
}

TEST(ThreadPool, RethrowsInTheCallerAndGoesOn) {
  ThreadPool pool{2};
  for (int bad = 0; bad < 4; ++bad) {
    std::atomic<int> calls = 0;
    auto task = [&](int i, int) {
      ++calls;
      if (i == bad)
        throw std::runtime_error{"task " + std::to_string(i)};
    };
    try {
      pool.run(4, task);
      FAIL() << "nothing was thrown";
    } catch (const std::runtime_error& e) {
      EXPECT_EQ(e.what(), "task " + std::to_string(bad));
    }
    EXPECT_EQ(calls, 4);
  }
  EXPECT_NO_THROW(pool.run(4, [](int, int) {}));
}

TEST(ThreadPool, TakesOneCallerAfterAnother) {
  ThreadPool pool{2};
  std::atomic<int> calls = 0;
  for (int i = 0; i < 20; ++i)
    std::thread{[&] { pool.run(10, [&](int, int) { ++calls; }); }}.join();
  EXPECT_EQ(calls, 200);
}

TEST(ThreadPool, SleepsWhileIdle) {
  ThreadPool pool{3};
  pool.run(8, [](int, int) {});
  auto cpu_seconds = [] {
    timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return double(t.tv_sec) + 1e-9 * double(t.tv_nsec);
  };
  double before = cpu_seconds();
  timespec idle{0, 200'000'000}; // the property is about time, so the test has to take some
  nanosleep(&idle, nullptr);
  EXPECT_LT(cpu_seconds() - before, 0.05);
}

TEST(ThreadPool, EndsWithoutHavingRun) {
  for (int i = 0; i < 100; ++i)
    ThreadPool pool{4};
}

TEST(PhysicalCores, AreBetweenOneAndTheLogicalOnes) {
  EXPECT_GE(physical_cores(), 1);
  EXPECT_LE(physical_cores(), int(std::thread::hardware_concurrency()));
}

} // namespace
} // namespace millrace
