/**
 * An adapter of a checkpoint, resolved: what of it rides beside the model's own matrices, and what takes the place of
 * tensors. Source: "LoRA: Low-Rank Adaptation of Large Language Models" (arXiv 2106.09685); files as PEFT writes them.
 */

/**
 * y = W·x + B·(scale·(A·x)) of one matrix that the graph multiplies with. Names and row orders are those of the
 * checkpoint's tensors (Checkpoint.tensors), also where a file holds several of them in one module.
 */
export interface LowRank {
  /** Name of W, [out, in]. */
  readonly tensor: string;
  readonly rank: number;
  readonly inputs: number;
  readonly outputs: number;
  /** lora_alpha / rank, or / √rank. */
  readonly scale: number;
  /** Reads the files: A, f32[rank, inputs], and B, f32[outputs, rank], row-major. */
  readonly read: () => { readonly a: Float32Array; readonly b: Float32Array };
}

export interface Adapter {
  /** Absolute path of its folder. */
  readonly path: string;
  /**
   * SHA-256, hexadecimal, of all that it computes with: every tensor's values, and the scale of each product. The same
   * for a copy of another name; reads all of the files.
   */
  readonly hash: string;
  /** Products beside dense matrices of layers, by the name of the matrix. */
  readonly products: ReadonlyMap<string, LowRank>;
  /** Largest rank of the products; 0: there are none. */
  readonly rank: number;
  /**
   * What takes the place of tensors of the base: whole modules, biases, and matrices that an adapter changes in ways
   * that do not ride (heads, embeddings, experts, DoRA). Empty for adapters that can be chosen by request.
   */
  readonly replaced: readonly string[];
  /** Bytes of its weight files. */
  readonly sizeBytes: number;
  /** What users should know: one line each. */
  readonly warnings: readonly string[];
}
