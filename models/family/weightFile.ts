/** What every reader of weight files returns: tensors with their places. */
export interface WeightEntry {
  readonly name: string;
  /** In the words of safetensors: F32, BF16, … */
  readonly dtype: string;
  readonly shape: readonly number[];
  /** Bytes from the start of the file. Aligned to the element's size only if the writer did so. */
  readonly offset: number;
  readonly byteLength: number;
}

export interface WeightFile {
  readonly file: string;
  readonly sizeBytes: number;
  readonly entries: readonly WeightEntry[];
  /** SHA-256, hexadecimal, of what describes the tensors. */
  readonly headerHash: string;
}
