/**
 * Tables that rotated pairs read, such as cosines and sines of a row's position. All heads of a row read the same
 * entries: a thread loads its own once for a row of the tile, all at once, where it has registers for them. Only for
 * products of E4M3, whose epilogues have half the time.
 */
import type { Segment } from '../../../ir/kernel.js';
import type { Access, Scalar } from '../../../ir/scalar.js';
import { operands as childrenOf } from '../../../ir/scalar.js';
import type { CudaOperands, Operand } from '../text/operands.js';
import { RowScope } from '../text/rowScope.js';
import { unrolled } from '../text/statements.js';

interface RowTable {
  readonly operand: Operand;
  readonly via: string | undefined;
}

/** A thread's entries of the tables of a row. */
export class RowTables {
  private readonly tables: readonly RowTable[];
  private readonly segment: Segment;
  private readonly operands: CudaOperands;
  /** Entries of two columns that a thread has of each. */
  private readonly entries: number;

  /** For tiles of whole heads, whose pairs are 8 columns wide. */
  constructor(segment: Segment, operands: CudaOperands) {
    const { pairing } = segment;
    this.segment = segment;
    this.operands = operands;
    this.entries = pairing.kind === 'rotate' && pairing.width === 8 ? pairing.headDim / 2 / 8 : 0;
    this.tables = this.entries === 0 ? [] : this.find();
  }

  get isEmpty(): boolean {
    return this.tables.length === 0;
  }

  /** Registers that the entries take. */
  get words(): number {
    return 2 * this.entries * this.tables.length;
  }

  /** Statements that load a row's entries. */
  lines(): string[] {
    const scope = new RowScope(this.operands, 'row', 'tr');
    const loads = this.tables.flatMap(({ operand, via }, i) => {
      const from = `${scope.rowPointer(operand, via)} + 8 * entry_ + 2 * quad`;
      return [
        `tw_f2 t${i}_[${this.entries}];`,
        ...unrolled(`for (int entry_ = 0; entry_ < ${this.entries}; entry_++)`, [
          `t${i}_[entry_] = tw_load2_${operand.dtype}(${from});`,
        ]),
      ];
    });
    return [...scope.lines, ...loads];
  }

  /** C expression (float) of a table's value at group `group` of 8 physical columns of the tile. */
  value(buffer: string, access: Access, group: string, lane: number): string | undefined {
    if (!this.isTable(access)) return undefined;
    const at = this.tables.findIndex(({ operand, via }) => operand.name === buffer && via === access.via);
    return at < 0 ? undefined : `t${at}_[(${group}) / 2 % ${this.entries}].${lane === 0 ? 'x' : 'y'}`;
  }

  /** Both halves of a head read the same entries. */
  private isTable(access: Access): access is Access & { readonly kind: 'periodic' } {
    return access.kind === 'periodic' && access.period === 8 * this.entries;
  }

  private find(): RowTable[] {
    const found = new Map<string, RowTable>();
    const visit = (s: Scalar): void => {
      if (s.op === 'load' && this.isTable(s.access))
        found.set(`${s.buffer} ${s.access.via ?? ''}`, { operand: this.operands.get(s.buffer), via: s.access.via });
      childrenOf(s).forEach(visit);
    };
    this.segment.outputs.forEach(({ value }) => visit(value));
    return [...found.values()];
  }
}
