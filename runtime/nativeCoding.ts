/** What the native addon quantizes matrices from (GPTQ), and what it makes of them. */
import type { NativeMemory } from './nativeObjects.js';

/** The sum H of the products of a layer's inputs (hessian.ts). */
export interface HessianJob {
  readonly k: number;
  readonly hessian: NativeMemory;
}

/** The factor of H, or that of its inverse. */
export interface FactorJob {
  readonly k: number;
  readonly factor: NativeMemory;
}

/** Rows of weights to code. `order`: columns as they are quantized. Without `inverse` they are rounded. */
export interface CodeJob {
  readonly k: number;
  readonly weights: Float32Array;
  readonly order: Int32Array;
  readonly bits: number;
  readonly group: number;
  readonly isSymmetric: boolean;
  readonly inverse?: NativeMemory;
}

/** A matrix [rows, k] as (code − zero)·scale, with a scale for each row and group of columns, in their order. */
export interface CodedRows {
  /** [rows, k], columns as stored. */
  readonly codes: Uint8Array;
  /** [groups, rows]: bits of f16. */
  readonly scales: Uint16Array;
  /** [groups, rows] */
  readonly zeros: Uint8Array;
  /** The error of the outputs by the damped matrix of inputs; 0 where rows were rounded. */
  readonly loss: number;
}
