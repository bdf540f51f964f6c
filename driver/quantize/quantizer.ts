/** Matrices → codes in the file that is written, and what that costs their outputs. */
import { UserError } from '../../errors.js';
import { FORMATS } from '../../ir/storage.js';
import type { Checkpoint } from '../../models/checkpoint.js';
import type { TensorLocation } from '../../models/model/tensors.js';
import type { GptqSettings } from '../../models/quantized/packed.js';
import { type CodeSettings, inOrder, type LayerHessian, roundRows } from '../../runtime/hessian.js';
import type { CodedRows } from '../../runtime/nativeCoding.js';
import type { NativePool } from '../../runtime/nativeObjects.js';
import type { ChosenMatrix, SharedInputs } from './matrices.js';
import type { QuantizedTensors } from './tensors.js';

/** What quantizing cost a matrix. */
export interface MatrixReport {
  readonly tensor: string;
  readonly rows: number;
  readonly k: number;
  /**
   * Relative RMS error of the outputs on the calibration text, ‖ΔW·X‖ / ‖W·X‖: as written, and as rounding to the
   * nearest code would have given. Absent without calibration.
   */
  readonly error?: number;
  readonly roundingError?: number;
}

export class Quantizer {
  readonly reports: MatrixReport[] = [];
  /** Tensors as the model reads them now. */
  readonly tensors: Map<string, TensorLocation>;
  private readonly settings: GptqSettings;
  private readonly out: QuantizedTensors;
  private readonly pool: NativePool;

  constructor(
    { tensors }: Pick<Checkpoint, 'tensors'>,
    settings: GptqSettings,
    out: QuantizedTensors,
    pool: NativePool,
  ) {
    this.settings = settings;
    this.tensors = new Map(tensors);
    this.out = out;
    this.pool = pool;
  }

  private settingsFor(k: number): CodeSettings {
    const { bits, group, isSymmetric } = this.settings;
    return { bits, group: group === -1 ? k : group, isSymmetric };
  }

  private take(matrix: ChosenMatrix, coded: CodedRows, order: Int32Array, errors: Partial<MatrixReport>): void {
    for (const place of this.out.write(matrix, { ...coded, order })) this.tensors.set(place.name, place);
    const { tensor, rows, k } = matrix;
    this.reports.push({ tensor: tensor.name, rows, k, ...errors });
  }

  async round(matrix: ChosenMatrix): Promise<void> {
    const { k } = matrix;
    const coded = await roundRows(this.pool, this.valuesOf(matrix), k, this.settingsFor(k));
    this.take(matrix, coded, inOrder(k), {});
  }

  /** Quantizes matrices of the same inputs. */
  async calibrated({ k, matrices }: SharedInputs, hessian: LayerHessian): Promise<void> {
    const factored = await hessian.factor(this.settings.isOrdered);
    try {
      const settings = this.settingsFor(k);
      const measured: { readonly weights: Float32Array; readonly all: number; readonly rounding: number }[] = [];
      for (const matrix of matrices) {
        const weights = this.valuesOf(matrix);
        const rounded = errorsOf(weights, k, await roundRows(this.pool, weights, k, settings), settings);
        measured.push({ weights, all: await factored.norm(weights), rounding: await factored.norm(rounded) });
      }
      await factored.invert();
      for (const [i, matrix] of matrices.entries()) {
        const { weights, all, rounding } = measured[i]!;
        const coded = await factored.code(weights, settings);
        const share = (norm: number): number => (all === 0 ? 0 : Math.sqrt(norm / all));
        this.take(matrix, coded, factored.order, { error: share(coded.loss), roundingError: share(rounding) });
      }
    } finally {
      factored.release();
    }
  }

  private valuesOf(matrix: ChosenMatrix): Float32Array {
    const values = this.out.values(matrix);
    if (values.every(Number.isFinite)) return values;
    throw new UserError(
      `${matrix.tensor.name}: has a weight that is not finite`,
      'download the checkpoint again, or use another one',
    );
  }
}

/** What rounding in order of columns takes from weights [rows, k]. */
function errorsOf(
  weights: Float32Array,
  k: number,
  { codes, scales, zeros }: CodedRows,
  { group }: CodeSettings,
): Float32Array {
  const rows = weights.length / k;
  const factors = FORMATS.f16.decode(new Uint8Array(scales.buffer, scales.byteOffset, scales.byteLength));
  return weights.map((value, i) => {
    const at = Math.floor((i % k) / group) * rows + Math.floor(i / k);
    return value - (codes[i]! - zeros[at]!) * factors[at]!;
  });
}
