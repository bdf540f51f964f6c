/**
 * GPTQ as its paper writes it (arXiv:2210.17323, algorithm 1), in float64 and column by column: an explicit inverse by
 * elimination, its upper Cholesky factor, no blocks and no lazy updates. Written without a look at runtime/native.
 */
export interface ReferenceSettings {
  readonly bits: number;
  readonly group: number;
  readonly isSymmetric: boolean;
}

export interface ReferenceCodes {
  /** [rows, k] */
  readonly codes: readonly number[];
  /** [groups, rows] */
  readonly scales: readonly number[];
  readonly zeros: readonly number[];
}

type Matrix = readonly (readonly number[])[];

/** Inverse by Gauss and Jordan with pivots. */
function inverse(matrix: Matrix): number[][] {
  const n = matrix.length;
  const rows = matrix.map((row, i) => [...row, ...Array.from({ length: n }, (_, j) => (i === j ? 1 : 0))]);
  for (let column = 0; column < n; column++) {
    let pivot = column;
    for (let i = column; i < n; i++) if (Math.abs(rows[i]![column]!) > Math.abs(rows[pivot]![column]!)) pivot = i;
    [rows[column], rows[pivot]] = [rows[pivot]!, rows[column]!];
    const head = rows[column]!;
    const by = head[column]!;
    for (let j = 0; j < 2 * n; j++) head[j]! /= by;
    for (let i = 0; i < n; i++) {
      const factor = rows[i]![column]!;
      if (i !== column && factor !== 0) for (let j = 0; j < 2 * n; j++) rows[i]![j]! -= factor * head[j]!;
    }
  }
  return rows.map((row) => row.slice(n));
}

/** Upper U with matrix = UᵀU. */
function upperCholesky(matrix: Matrix): number[][] {
  const n = matrix.length;
  const upper = Array.from({ length: n }, () => new Array<number>(n).fill(0));
  for (let i = 0; i < n; i++)
    for (let j = i; j < n; j++) {
      let sum = matrix[i]![j]!;
      for (let t = 0; t < i; t++) sum -= upper[t]![i]! * upper[t]![j]!;
      upper[i]![j] = i === j ? Math.sqrt(sum) : sum / upper[i]![i]!;
    }
  return upper;
}

/** Nearest f16 of a positive number, ties to even. */
function toF16(value: number): number {
  const step = 2 ** Math.max(Math.floor(Math.log2(value)) - 10, -24);
  return Math.min(Math.max(evenRound(value / step) * step, 2 ** -24), 65504);
}

function evenRound(value: number): number {
  const low = Math.floor(value);
  const rest = value - low;
  return rest > 0.5 || (rest === 0.5 && low % 2 !== 0) ? low + 1 : low;
}

function gridOf(values: readonly number[], { bits, isSymmetric }: ReferenceSettings): readonly [number, number] {
  const most = 2 ** bits - 1;
  const [low, high] = [Math.min(0, ...values), Math.max(0, ...values)];
  if (low === 0 && high === 0) return [1, 2 ** (bits - 1)];
  if (isSymmetric) return [toF16((2 * Math.max(-low, high)) / most), 2 ** (bits - 1)];
  const scale = toF16((high - low) / most);
  const zero = Math.min(evenRound(-low / scale), most);
  return zero < 1 ? [toF16(high / (most - 1)), 1] : [scale, zero];
}

/** H + 1 % of its mean diagonal, for inputs as rows. */
export function dampedHessian(inputs: Matrix): number[][] {
  const k = inputs[0]!.length;
  const hessian = Array.from({ length: k }, (_, i) =>
    Array.from({ length: k }, (_, j) => inputs.reduce((sum, x) => sum + 2 * x[i]! * x[j]!, 0)),
  );
  const mean = hessian.reduce((sum, row, i) => sum + row[i]!, 0) / k;
  hessian.forEach((row, i) => (row[i]! += 0.01 * mean));
  return hessian;
}

/** Codes of weights [rows, k]; `hessian` undefined: to the nearest. `order`: columns as they are quantized. */
export function referenceCodes(
  weights: Matrix,
  hessian: Matrix | undefined,
  order: readonly number[],
  settings: ReferenceSettings,
): ReferenceCodes {
  const { bits, group } = settings;
  const k = order.length;
  const most = 2 ** bits - 1;
  const upper = hessian && upperCholesky(inverse(order.map((row) => order.map((column) => hessian[row]![column]!))));
  const codes = new Array<number>(weights.length * k);
  const groups = Math.ceil(k / group);
  const scales = new Array<number>(groups * weights.length);
  const zeros = new Array<number>(groups * weights.length);
  weights.forEach((row, r) => {
    const left = order.map((column) => row[column]!);
    let [scale, zero] = [1, 0];
    for (let i = 0; i < k; i++) {
      if (i % group === 0) {
        [scale, zero] = gridOf(left.slice(i, i + group), settings);
        scales[(i / group) * weights.length + r] = scale;
        zeros[(i / group) * weights.length + r] = zero;
      }
      const code = Math.min(Math.max(evenRound(left[i]! / scale) + zero, 0), most);
      codes[r * k + order[i]!] = code;
      if (upper === undefined) continue;
      const error = (left[i]! - (code - zero) * scale) / upper[i]![i]!;
      for (let j = i + 1; j < k; j++) left[j]! -= error * upper[i]![j]!;
    }
  });
  return { codes, scales, zeros };
}
