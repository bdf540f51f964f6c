/** An op with operands, and what it gives. */
import type { Attributes } from '../../ir/ops/opDef.js';
import type { OpName } from '../../ir/ops/index.js';

export interface Example {
  readonly op: OpName;
  /** Types and elements of the operands; T is 2 and R is 3. */
  readonly operands: readonly (readonly [string, readonly number[]])[];
  readonly attributes?: Attributes;
  readonly type: string;
  readonly result: readonly number[];
}
