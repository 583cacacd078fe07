#include "actors/scheduler/step_budget.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <thread>
#include <vector>

namespace millrace {
namespace {

// ---- the line ----

TEST(PassFit, IsALineOverRows) {
  PassFit fit;
  EXPECT_FALSE(fit.known());
  for (double rows : {16, 128, 64, 100, 32})
    fit.note(rows, 0.010 + 0.001 * rows);
  EXPECT_TRUE(fit.known());
  EXPECT_NEAR(fit.rows_within(0.060), 50, 1e-6);
  EXPECT_NEAR(fit.rows_within(0.005), -5, 1e-6) << "less than an empty pass takes";
}

TEST(PassFit, TakesTimeAsProportionalWherePassesAreOfOneSize) {
  PassFit fit;
  for (int i = 0; i < 10; ++i)
    fit.note(64, 0.032);
  EXPECT_NEAR(fit.rows_within(0.016), 32, 1e-6);
}

TEST(PassFit, TakesTimeAsProportionalWhereNoiseTellsAWrongSlope) {
  PassFit falling, steep;
  for (int i = 0; i < 4; ++i) {
    falling.note(20, 0.030), falling.note(60, 0.020);
    steep.note(20, 0.001), steep.note(60, 0.090);
  }
  for (const PassFit* fit : {&falling, &steep}) {
    const double rows = fit->rows_within(0.05);
    EXPECT_GT(rows, 0);
    EXPECT_NEAR(fit->rows_within(0.1), 2 * rows, 1e-6) << "through the origin";
  }
}

TEST(PassFit, FollowsAChangeOfPace) {
  PassFit fit;
  for (int i = 0; i < 20; ++i)
    fit.note(i % 2 ? 32 : 96, (i % 2 ? 32 : 96) * 0.001);
  for (int i = 0; i < 20; ++i)
    fit.note(i % 2 ? 32 : 96, (i % 2 ? 32 : 96) * 0.003);
  EXPECT_NEAR(fit.rows_within(0.3), 100, 5);
}

// ---- rows of a pass ----

class Budget : public testing::Test {
protected:
  /// Passes of a device whose decode step takes 10 ms and whose prefill pass 2 ms and 1 ms more for each row.
  static void learn(StepBudget& budget) {
    budget.note_decode(4, 100, 0.010);
    for (int32_t rows : {16, 64, 32, 128, 16})
      budget.note_prefill(rows, 1, 0.002 + 0.001 * rows);
  }
};

TEST_F(Budget, IsTheWholeChunkWhereNothingDecodes) {
  StepBudget budget(128, 1.5);
  EXPECT_EQ(budget.prefill_rows(), 128);
  learn(budget);
  EXPECT_EQ(budget.prefill_rows(), 128);
  budget.set_decoding(3);
  EXPECT_LT(budget.prefill_rows(), 128);
  budget.set_decoding(0);
  EXPECT_EQ(budget.prefill_rows(), 128);
}

TEST_F(Budget, IsAQuarterWhileNothingIsKnown) {
  StepBudget budget(128, 1.5);
  budget.set_decoding(1);
  EXPECT_EQ(budget.prefill_rows(), 32);
  budget.note_prefill(32, 1, 0.030);
  EXPECT_EQ(budget.prefill_rows(), 32) << "no decode pass yet";
  budget.note_decode(1, 10, 0.040);
  EXPECT_EQ(budget.prefill_rows(), 64) << "one and a half steps are 60 ms";
}

TEST_F(Budget, FitsThePassIntoSoManySteps) {
  for (const auto& [stretch, rows] : {std::pair(4.0, 38), {10.0, 98}, {2.0, 18}}) {
    StepBudget budget(128, stretch);
    learn(budget);
    budget.set_decoding(2);
    EXPECT_NEAR(budget.prefill_rows(), rows, 1) << stretch;
  }
}

TEST_F(Budget, IsNeverBelowTheLeastNorAboveTheChunk) {
  for (double stretch : {0.0, 0.1, 1.5}) {
    StepBudget budget(128, stretch);
    learn(budget);
    budget.set_decoding(2);
    EXPECT_EQ(budget.prefill_rows(), StepBudget::kLeast) << stretch;
  }
  StepBudget generous(128, 1e12);
  learn(generous);
  generous.set_decoding(2);
  EXPECT_EQ(generous.prefill_rows(), 128);
}

TEST_F(Budget, AChunkBelowTheLeastIsTheBudget) {
  StepBudget budget(5, 1.5);
  EXPECT_EQ(budget.prefill_rows(), 5);
  budget.set_decoding(1);
  EXPECT_EQ(budget.prefill_rows(), 5);
  learn(budget);
  EXPECT_EQ(budget.prefill_rows(), 5);
}

TEST_F(Budget, PassesThatTakeNoTimeAreNoTrouble) {
  for (double stretch : {0.0, 1.5, 1e12})
    for (double step : {0.0, 0.010}) {
      StepBudget budget(128, stretch);
      budget.set_decoding(1);
      budget.note_decode(1, 1, step);
      for (int i = 0; i < 3; ++i)
        budget.note_prefill(32, 1, 0);
      EXPECT_GE(budget.prefill_rows(), StepBudget::kLeast) << stretch << " " << step;
      EXPECT_LE(budget.prefill_rows(), 128);
    }
}

TEST_F(Budget, FollowsTheStepsAsTheyGrowLonger) {
  StepBudget budget(128, 2);
  learn(budget);
  budget.set_decoding(2);
  int32_t before = budget.prefill_rows();
  for (int i = 0; i < 30; ++i) {
    budget.note_decode(4, 1000, 0.040);
    EXPECT_GE(budget.prefill_rows(), before);
    before = budget.prefill_rows();
  }
  EXPECT_NEAR(before, 78, 1);
}

TEST_F(Budget, ComesToTheTrueSizeOfItself) {
  // A device whose passes it steers: 1 ms and half a millisecond a row, beside steps of 20 ms.
  for (double first : {0.0001, 10.0}) { // seconds of a first pass that misleads
    StepBudget budget(512, 1.5);
    budget.set_decoding(1);
    budget.note_decode(1, 1, 0.020);
    budget.note_prefill(64, 1, first);
    for (int pass = 0; pass < 40; ++pass) {
      const int32_t rows = budget.prefill_rows();
      budget.note_prefill(rows, 1, 0.001 + 0.0005 * rows);
    }
    EXPECT_NEAR(budget.prefill_rows(), 58, 6) << first;
  }
}

// ---- the book ----

TEST(StepBudget, BooksPassesByKind) {
  StepBudget budget(128, 1.5, {.weight_bytes = 1000, .position_bytes = 10, .row_operations = 7, .logits_operations = 3});
  budget.note_prefill(20, 2, 0.5);
  budget.note_prefill(30, 0, 0.25);
  budget.note_decode(4, 100, 0.125);
  budget.note_loop(0.0625);
  budget.note_loop(0.0625);
  const StepBudget::Totals totals = budget.totals();
  EXPECT_EQ(totals.prefill_passes, 2);
  EXPECT_EQ(totals.prefill_rows, 50);
  EXPECT_DOUBLE_EQ(totals.prefill_seconds, 0.75);
  EXPECT_DOUBLE_EQ(totals.prefill_operations, 50 * 7 + 2 * 3);
  EXPECT_EQ(totals.decode_passes, 1);
  EXPECT_EQ(totals.decode_rows, 4);
  EXPECT_DOUBLE_EQ(totals.decode_seconds, 0.125);
  EXPECT_DOUBLE_EQ(totals.decode_bytes, 1000 + 100 * 10);
  EXPECT_DOUBLE_EQ(totals.loop_seconds, 0.125);
}

TEST(StepBudget, CountsAfterHowManyPassesBlocksWereFree) {
  StepBudget budget(128, 1.5);
  for (int64_t passes : {0, 0, 1, 2, 3, 4, 1000, -1})
    budget.note_freed(passes);
  EXPECT_EQ(budget.totals().freed_after, (std::array<int64_t, 4>{3, 1, 1, 3}));
}

TEST(StepBudget, ServesTwoThreads) {
  StepBudget budget(128, 1.5);
  std::thread decode([&] {
    for (int i = 0; i < 10'000; ++i) {
      budget.set_decoding(i % 3);
      budget.note_decode(1, 1, 0.01);
    }
  });
  for (int i = 0; i < 10'000; ++i)
    budget.note_prefill(budget.prefill_rows(), 1, 0.01);
  decode.join();
  EXPECT_EQ(budget.totals().prefill_passes, 10'000);
  EXPECT_EQ(budget.totals().decode_passes, 10'000);
}

} // namespace
} // namespace millrace
