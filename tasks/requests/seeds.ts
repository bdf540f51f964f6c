/** Seeds of the public harness's generators. */
export interface Seeds {
  /** Python's own, which some tasks shuffle with. */
  readonly python: number;
  /** NumPy's: nothing here draws from it, and it is recorded; null for none. */
  readonly numpy: number | null;
  /** PyTorch's. Drawn texts follow from it, by tilewright's generator. */
  readonly torch: number;
  /** That of the examples. */
  readonly fewshot: number;
}

export const SEEDS: Seeds = { python: 0, numpy: 1234, torch: 1234, fewshot: 1234 };
