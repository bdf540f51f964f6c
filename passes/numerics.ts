/** What a target computes in, which decides what passes make of a graph. */
import type { CacheFormat } from '../ir/function.js';
import type { FloatType } from '../ir/types.js';
import type { AdapterSlots } from '../ir/adapterRows.js';
import type { Finishing } from './fuseRowNorms.js';
import type { StoredFormats } from './keepBlockWeights.js';
import type { GroupsOf } from './keepGroupedWeights.js';
import type { WeightStorage } from './lowerWeights.js';
import type { ContractionQuantization } from './quantizeContractions.js';

/** The types in which a target computes, and which kernels compute what. A missing setting is its default. */
export interface Numerics {
  /** Type that the target's contractions read. */
  readonly activations: FloatType;
  /** Type of queries, keys and values that attention reads. Default f32. */
  readonly attention?: FloatType;
  /** Type of keys and values that attention reads, as codes with scales. Default: that of `attention`. */
  readonly cache?: CacheFormat;
  readonly weights: WeightStorage;
  /** Contractions whose operands have 8 bits. Default: none. */
  readonly narrow?: ContractionQuantization;
  /** Matrices that are multiplied as they are stored: in blocks, or codes. Default: none. */
  readonly stored?: StoredFormats;
  /** Whether matrices that are stored in 4 bits stay so. Default: they are decoded while they load. */
  readonly groups?: 'kept';
  /** Which they are; what a model's checkpoint says. Default: none. */
  readonly groupsOf?: GroupsOf;
  /** Whether experts' matrices that are stored in MXFP4 stay so. Default: they are decoded while they load. */
  readonly micro?: 'kept';
  /** Which they are; what a model's checkpoint says. Default: none. */
  readonly microscaled?: ReadonlySet<string>;
  /** Type in which an epilogue reads its product. Default f32. */
  readonly products?: 'f32' | 'f20';
  /** Which kernels store rows of states: loops of their own, or those that compute the rows. Default `loops`. */
  readonly writes?: 'loops' | 'epilogues';
  /**
   * Which kernels compute what needs whole rows of a product: loops of their own, or the contraction. Default `loops`.
   */
  readonly rows?: 'loops' | 'contractions';
  /** Which contractions do so. Default `deep`: not those that multiply for less time than it takes. */
  readonly finishing?: Finishing;
  /** How rows of narrow states lie. Default: padded to whole vectors, which kernels then write. */
  readonly states?: 'blocks';
  /** Slots for adapters beside the matrices of layers, and the rank of each. Default: none. */
  readonly adapters?: AdapterSlots;
  /** Type of the residual stream if activations are bf16. Default f32. */
  readonly stream?: 'f32' | 'f24';
}
