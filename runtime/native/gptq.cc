#include "gptq.h"

#include "halves.h"

namespace tw {
namespace {

/** Columns that are corrected one by one; those behind them, by a product for all of these. */
constexpr size_t LAZY = 128;
constexpr size_t LANES = PANEL_COLUMNS;

/** The f16 nearest to a positive number, ties to even; never 0 nor infinite. */
uint16_t scaleBits(double value) {
  constexpr double LEAST = 0x1p-24, MOST = 65504;
  const double bounded = std::min(std::max(value, LEAST), MOST);
  int exponent = 0;
  std::frexp(bounded, &exponent);
  // A normal number has 11 significant bits; below 2^-14 the step is 2^-24.
  const int step = std::max(exponent - 11, -24);
  const auto steps = static_cast<uint32_t>(std::nearbyint(std::ldexp(bounded, -step)));
  if (step == -24) return static_cast<uint16_t>(steps);  // 1024 steps are the first normal number
  return static_cast<uint16_t>((static_cast<uint32_t>(step + 24) << 10) + steps);
}

/** The grids of a group of columns, one for each row of a panel. */
struct Grids {
  double scale[LANES];
  double zero[LANES];
  uint16_t bits[LANES];
};

Grids gridsFor(const double *columns, size_t count, const CodeSettings &settings) {
  const double most = (1 << settings.bits) - 1;
  Grids grids;
  for (size_t r = 0; r < LANES; r++) {
    double low = 0, high = 0;
    for (size_t a = 0; a < count; a++) {
      low = std::min(low, columns[a * LANES + r]);
      high = std::max(high, columns[a * LANES + r]);
    }
    const auto set = [&](double scale, double zero) {
      grids.bits[r] = scaleBits(scale);
      grids.scale[r] = static_cast<double>(fromF16(grids.bits[r]));
      grids.zero[r] = zero;
    };
    if (settings.isSymmetric || low == high) {
      const double magnitude = std::max(-low, high);
      set(magnitude == 0 ? 1 : 2 * magnitude / most, (most + 1) / 2);
      continue;
    }
    set((high - low) / most, 0);
    grids.zero[r] = std::min(std::nearbyint(-low / grids.scale[r]), most);
    // Files of the first version hold zero points less one: 0 would have no code there.
    if (grids.zero[r] < 1) set(high / (most - 1), 1);
  }
  return grids;
}

/** One panel of rows. */
class PanelCoder {
 public:
  PanelCoder(const CodeSettings &settings, const ColumnOrder &order, const SquareMatrix *inverse)
      : settings_(settings), order_(order), inverse_(inverse), k_(order.size()) {
    columns_.resize((hessianStride(k_) + PANEL_ROWS) * LANES);
    errors_.resize(LAZY * LANES);
  }

  double code(const float *weights, size_t rows, size_t first, CodedRows &out) {
    loadPanel(weights, rows, k_, first, order_, columns_.data());
    std::fill(lost_, lost_ + LANES, 0.0);
    for (size_t begin = 0; begin < k_; begin += LAZY) codeBlock(begin, std::min(k_, begin + LAZY), rows, first, out);
    double sum = 0;
    for (size_t r = 0; r < std::min(LANES, rows - first); r++) sum += lost_[r];
    return sum;
  }

 private:
  /** The columns at these places of the order: rows k − 1 − place of the panel, corrected by the columns before. */
  void codeBlock(size_t begin, size_t end, size_t rows, size_t first, CodedRows &out) {
    const size_t lowest = k_ - end;
    for (size_t place = begin; place < end; place++) {
      const size_t a = k_ - 1 - place;
      if (place % settings_.group == 0) beginGroup(place, rows, first, out);
      double *errors = errors_.data() + (a - lowest) * LANES;
      codeColumn(place, rows, first, inverse_ == nullptr ? 1 : inverse_->row(a)[a], errors, out);
      if (inverse_ == nullptr) continue;
      panelProduct(columns_.data() + lowest * LANES, LANES, a - lowest,
                   {inverse_->row(a) + lowest, inverse_->stride, errors, LANES, 1}, PanelSign::Subtract);
    }
    if (inverse_ == nullptr) return;
    panelProduct(columns_.data(), LANES, lowest,
                 {inverse_->row(lowest), inverse_->stride, errors_.data(), LANES, end - begin}, PanelSign::Subtract);
  }

  void beginGroup(size_t place, size_t rows, size_t first, CodedRows &out) {
    const size_t last = std::min(k_, place + settings_.group);
    grids_ = gridsFor(columns_.data() + (k_ - last) * LANES, last - place, settings_);
    const size_t group = place / settings_.group;
    for (size_t r = 0; r < LANES && first + r < rows; r++) {
      out.scales[group * rows + first + r] = grids_.bits[r];
      out.zeros[group * rows + first + r] = static_cast<uint8_t>(grids_.zero[r]);
    }
  }

  void codeColumn(size_t place, size_t rows, size_t first, double weight, double *errors, CodedRows &out) {
    const double *values = columns_.data() + (k_ - 1 - place) * LANES;
    const double most = (1 << settings_.bits) - 1;
    const auto column = static_cast<size_t>(order_[place]);
    for (size_t r = 0; r < LANES; r++) {
      const double scale = grids_.scale[r], zero = grids_.zero[r];
      const double code = std::min(std::max(std::nearbyint(values[r] / scale) + zero, 0.0), most);
      errors[r] = (values[r] - (code - zero) * scale) / weight;
      if (inverse_ != nullptr) lost_[r] += errors[r] * errors[r];
      if (first + r < rows) out.codes[(first + r) * k_ + column] = static_cast<uint8_t>(code);
    }
  }

  const CodeSettings &settings_;
  const ColumnOrder &order_;
  const SquareMatrix *inverse_;
  const size_t k_;
  std::vector<double> columns_;
  std::vector<double> errors_;
  Grids grids_;
  double lost_[LANES];
};

}  // namespace

CodedRows codeRows(Pool &pool, const float *weights, size_t rows, const ColumnOrder &order,
                   const CodeSettings &settings, const SquareMatrix *inverse) {
  const size_t k = order.size(), groups = (k + settings.group - 1) / settings.group;
  CodedRows out;
  out.codes.resize(rows * k);
  out.scales.resize(groups * rows);
  out.zeros.resize(groups * rows);
  std::vector<double> lost((rows + LANES - 1) / LANES);
  eachOf(pool, lost.size(), [&](size_t panel) {
    PanelCoder coder(settings, order, inverse);
    lost[panel] = coder.code(weights, rows, panel * LANES, out);
  });
  for (const double each : lost) out.loss += each;
  return out;
}

}  // namespace tw
