/**
 * Divides the loading of weights into steps that fit the staging buffers. Pure: touches neither files nor the device.
 */
import type { GroupSize } from '../../ir/groups.js';
import type { WeightDecl } from '../../ir/kernel.js';
import { packedDepth, rowMaps } from '../../ir/packing.js';
import { FORMATS } from '../../ir/storage.js';
import { roundUp } from '../../ir/types.js';
import { UserError } from '../../errors.js';
import type { EncodedPart, EncodedSource, TensorSource } from '../tensorSource.js';
import type { PackedWeight, WeightPlan } from '../weightPlan.js';
import { groupColumns, groupJob, type GroupPart } from './packGroups.js';
import { endOf, JOB_BYTES, matrixColumns, packJob, wholeRows, type DeviceJob, type PackColumns } from './packJob.js';
import { stretchesOf } from './stretches.js';

/** Whole rows of a source: where they come from, and the job that lays them out. */
export interface Piece {
  readonly job: DeviceJob;
  /** Byte offset of the job in the memory of all jobs. */
  readonly jobOffset: number;
  /** Bytes copied to the step's staging buffer first; absent if values are made up. */
  readonly upload?: {
    /** An encoded matrix is copied as f32; the offset is that of its rows as f32. */
    readonly file: string | EncodedSource;
    /** Its tensor, for messages. */
    readonly name: string;
    readonly offset: number;
    readonly bytes: number;
    readonly stagedAt: number;
  };
  /** What the job writes: a weight, or the f32 factors of columns. */
  readonly target: { readonly memory: 'weights' | 'scales'; readonly offset: number; readonly bytes: number };
  /** f32[k] in the memory of scales. */
  readonly scale?: { readonly offset: number; readonly bytes: number };
}

/** Pieces that share a staging buffer. */
export interface Step {
  readonly pieces: readonly Piece[];
  readonly stagedBytes: number;
  /** Index of the staging buffer; 0 if nothing is staged. */
  readonly staging: number;
  /** Steps that must have been laid out before anything is staged: those up to the last that used the same buffer. */
  readonly after: number;
  /** Bytes of weights that this step completes or fills, for progress reports. */
  readonly weightBytes: number;
  /** The last weight that it works on. */
  readonly weight: string;
}

export interface LoadPlan {
  readonly steps: readonly Step[];
  /** Size of a staging buffer: that of the largest step; 0 if nothing is read from files. */
  readonly stagingBytes: number;
  /** How many there are. */
  readonly stagings: number;
  readonly scaleBytes: number;
  readonly jobBytes: number;
  /** Ranges of the weights' memory that are zero: rows that pad a weight. Set before any step. */
  readonly zeros: readonly { readonly offset: number; readonly bytes: number }[];
}

/** Bytes of a staging buffer: what is copied in may be laid out while it is still in the L2 of the device. */
const STAGING = 32 << 20;
/**
 * One buffer on the bus, one being laid out (which takes less time), and a third so that neither waits for the other's
 * last bytes.
 */
const STAGINGS = 3;
/** Alignment of pieces in it: a piece starts on an L2 line. */
const ALIGNMENT = 256;
/** Limit on the launches of a step that stages nothing. */
const MOST_PIECES = 64;
const MOST_ROWS = 2 ** 31 - 1;

class StepBuilder {
  readonly steps: Step[] = [];
  jobs = 0;
  private pieces: Piece[] = [];
  private stagedBytes = 0;
  private weightBytes = 0;
  private weight = '';
  private readonly staging: number;
  /** For each staging buffer, the number of steps up to the last that used it. */
  private readonly usedBy: number[] = [];
  private staged = 0;

  constructor(staging: number) {
    this.staging = staging;
  }

  /** Staging buffers in use. */
  get stagings(): number {
    return this.usedBy.length;
  }

  /** Cuts the lines of a source into pieces. */
  add(
    weight: WeightDecl,
    tensor: TensorSource,
    source: {
      readonly name: string;
      readonly rows: number;
      readonly sourceRow: number;
      readonly added?: number;
      readonly part?: GroupPart;
    },
    place: Pick<Piece, 'target' | 'scale'>,
  ): void {
    const { part: own } = source;
    const columns = own === undefined ? matrixColumns(weight) : groupColumns(weight, own);
    for (const { lines, stored, range } of stretchesOf(tensor, source.rows, columns)) {
      const { stepBytes = 0, lineBytes = 0 } = stored ?? {};
      if (lineBytes > this.staging)
        throw new UserError(
          `Weight ${weight.name}: a row of ${columns} elements exceeds the ${this.staging} bytes of a staging buffer.`,
          'config.json describes no model that this program knows.',
        );
      for (let first = 0; first < lines;) {
        if (this.pieces.length >= MOST_PIECES || this.room() < lineBytes) this.flush();
        const fitting = stored === undefined ? lines : Math.floor((this.room() - lineBytes) / stepBytes) + 1;
        const count = Math.min(lines - first, fitting);
        const part = range(first, count);
        const { sourceRow, added = 0 } = source;
        const whole = { tensor, ...part, sourceRow, isScaled: place.scale !== undefined, added };
        const job = own === undefined ? packJob(weight, whole) : groupJob(weight, whole, own, place.target.bytes);
        const stagedAt = roundUp(this.stagedBytes, ALIGNMENT);
        const bytes = (count - 1) * stepBytes + lineBytes;
        const upload = stored && {
          file: stored.file,
          name: source.name,
          offset: stored.offset + first * stepBytes,
          bytes,
          stagedAt,
        };
        this.pieces.push({
          ...place,
          job,
          jobOffset: this.jobs++ * JOB_BYTES,
          ...(upload === undefined ? {} : { upload }),
        });
        if (upload !== undefined) this.stagedBytes = stagedAt + bytes;
        if (place.target.memory === 'weights' && own !== 'scales')
          this.weightBytes += FORMATS[weight.format].bytes(
            part.rows,
            weight.scalesOf === undefined ? writtenColumns(weight, part.view) : 1,
          );
        this.weight = weight.name;
        first += count;
      }
    }
  }

  /** Ends a step. */
  flush(): void {
    if (this.pieces.length === 0) return;
    const isStaged = this.stagedBytes > 0;
    const staging = isStaged ? this.staged++ % STAGINGS : 0;
    const after = isStaged ? (this.usedBy[staging] ?? 0) : 0;
    this.steps.push({
      pieces: this.pieces,
      stagedBytes: this.stagedBytes,
      staging,
      after,
      weightBytes: this.weightBytes,
      weight: this.weight,
    });
    if (isStaged) this.usedBy[staging] = this.steps.length;
    this.pieces = [];
    this.stagedBytes = this.weightBytes = 0;
  }

  private room(): number {
    return this.staging - roundUp(this.stagedBytes, ALIGNMENT);
  }
}

/** An encoded tensor of which a part is staged in place of its values. */
const reading = (tensor: TensorSource, reads: EncodedPart): TensorSource =>
  tensor.kind === 'encoded' ? { ...tensor, reads } : tensor;

/** Of weights in groups. */
const partOf = (part: GroupPart, group: GroupSize): EncodedPart =>
  part === 'codes' ? { kind: part } : { kind: part, group };

/** What is read of a weight's tensors, where it is not their values. */
const storedPart = ({ from, scalesOf }: WeightDecl): EncodedPart | undefined =>
  from === 'codes' ? { kind: scalesOf === undefined ? 'codes' : 'row scales' } : undefined;

/** Columns that a job writes; what pads a row belongs to the last of it. */
const writtenColumns = (weight: WeightDecl, view: PackColumns = wholeRows(weight)): number =>
  endOf(weight, view) - view.column;

const scaleKey = ({ weight }: PackedWeight): string =>
  `${weight.columnScale} ${weight.columnOffset ?? 0} ${matrixColumns(weight)}`;

/** Factors of columns, once each, as f32 vectors. */
function addScales(
  weights: readonly PackedWeight[],
  builder: StepBuilder,
): { readonly places: ReadonlyMap<string, { offset: number; bytes: number }>; readonly bytes: number } {
  const places = new Map<string, { offset: number; bytes: number }>();
  let end = 0;
  for (const weight of weights) {
    const key = scaleKey(weight);
    if (weight.columnScale === undefined || places.has(key)) continue;
    const { columnScale, columnOffset: added = 0 } = weight.weight;
    const k = matrixColumns(weight.weight);
    const place = { offset: end, bytes: k * 4 };
    places.set(key, place);
    end = roundUp(end + place.bytes, ALIGNMENT);
    const vector: WeightDecl = {
      name: columnScale!,
      layout: 'rows',
      format: 'f32',
      sources: [{ tensor: columnScale!, rows: 1 }],
      k,
      pairing: { kind: 'none' },
    };
    builder.add(
      vector,
      weight.columnScale,
      { name: columnScale!, rows: 1, sourceRow: 0, added },
      { target: { memory: 'scales', ...place } },
    );
  }
  builder.flush();
  return { places, bytes: end };
}

/**
 * Steps that load the packed weights of a plan, factors of columns first. `staging`: bytes of a staging buffer.
 * Throws UserError for a tensor whose rows are too long, Error for layouts that are not a GPU's.
 */
export function planLoading(plan: WeightPlan, staging = STAGING): LoadPlan {
  const packed = plan.weights.filter((weight) => weight.kind === 'packed');
  const builder = new StepBuilder(staging);
  const scales = addScales(packed, builder);
  const rowMap = rowMaps();
  const zeros: { offset: number; bytes: number }[] = [];
  for (const { weight, sources, offset, bytes, columnScale, ...rest } of packed) {
    if (matrixColumns(weight) > MOST_ROWS || bytes / FORMATS[weight.format].bytes(1, weight.k) > MOST_ROWS)
      throw new Error(`Weight ${weight.name} has too many rows or columns.`);
    const map = rowMap(weight);
    const padding = map.indexOf(-1);
    const rowBytes = FORMATS[weight.format].bytes(1, packedDepth(weight));
    // Padding rows of a weight in groups lie among others.
    if (padding >= 0 && weight.group !== undefined) zeros.push({ offset, bytes });
    else if (padding >= 0) zeros.push({ offset: offset + padding * rowBytes, bytes: bytes - padding * rowBytes });
    const scale =
      columnScale === undefined
        ? undefined
        : scales.places.get(scaleKey({ weight, sources, offset, bytes, columnScale, ...rest }));
    const { experts = 1 } = weight;
    // The matrices of an expert lie together, as if they were all.
    const own = { sources: sources.length / experts, bytes: bytes / experts };
    let sourceRow = 0;
    sources.forEach((tensor, i) => {
      const { rows, tensor: name } = weight.sources[i]!;
      if (i % own.sources === 0) sourceRow = 0;
      const place: Pick<Piece, 'target' | 'scale'> = {
        target: { memory: 'weights', offset: offset + Math.floor(i / own.sources) * own.bytes, bytes: own.bytes },
        ...(scale === undefined ? {} : { scale }),
      };
      const source = { name, rows, sourceRow };
      const stored = storedPart(weight);
      if (weight.group !== undefined)
        for (const part of ['codes', 'scales'] as const)
          builder.add(weight, reading(tensor, partOf(part, weight.group)), { ...source, part }, place);
      else builder.add(weight, stored === undefined ? tensor : reading(tensor, stored), source, place);
      sourceRow += rows;
    });
  }
  builder.flush();
  return {
    steps: builder.steps,
    stagingBytes: Math.max(0, ...builder.steps.map((step) => step.stagedBytes)),
    stagings: builder.stagings,
    scaleBytes: scales.bytes,
    jobBytes: builder.jobs * JOB_BYTES,
    zeros,
  };
}
