/** What every device gives for a micro-batch, and the one way in which its arithmetic fails. */

export interface ScoredBatch {
  readonly logProb: Float32Array;
  readonly isArgmax: Int32Array;
  /** What it kept busy, and when. */
  readonly spans?: readonly DeviceSpan[];
}

/**
 * Something a device did for a micro-batch. Times are milliseconds of the host's clock since the epoch, with fractions.
 */
export interface DeviceSpan {
  /** Among the devices of the executor, from 0: its stage. */
  readonly device: number;
  /** Kernels, or sending what the next stage needs. */
  readonly kind: 'compute' | 'copy';
  readonly begin: number;
  readonly end: number;
}

export interface LaunchProfile {
  readonly kernel: string;
  readonly path: string;
  readonly nanoseconds: number;
}

export interface Diagnosis {
  /** Model path of the first launch that wrote a value that is not finite. */
  readonly path: string;
  readonly buffer: string;
  readonly row: number;
  readonly column: number;
}

/** A value became NaN or infinite. eval recognises it by its name, `where` and `rows`. */
export class NonFiniteError extends Error {
  /** Model path of the first kernel whose result is not finite, where it could be found. */
  readonly where: string | undefined;
  /** Scored rows of the micro-batch that it reached. */
  readonly rows: readonly number[];

  constructor(where: string | undefined, rows: readonly number[]) {
    super(
      `A value is NaN or infinite${where === undefined ? '' : ` in ${where}`} (scored rows ${rows.slice(0, 8).join(', ')}${rows.length > 8 ? ', …' : ''} of the micro-batch).`,
    );
    this.name = 'NonFiniteError';
    this.where = where;
    this.rows = rows;
  }
}
