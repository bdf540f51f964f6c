/** Deterministic text of kernels, for dumps, `inspect` and tests. Nothing parses it. */
import { maskBuffers } from './kernelAccess.js';
import type { AdapterRows } from './adapterRows.js';
import type {
  Rounding,
  BufferDecl,
  ExpertRows,
  GemmKernel,
  Kernel,
  KernelModule,
  Output,
  Pairing,
  WeightDecl,
  WeightSource,
} from './kernel.js';
import { type Mask, reachOfMask } from './mask.js';
import { drawBuffers, loopDomains, pairBuffers } from './kernel.js';
import { pathBuffers } from './paths.js';
import { printScalar } from './scalar.js';

const printOutput = (output: Output): string => {
  const { buffer } = output;
  const value = printScalar(output.value);
  switch (output.kind) {
    case 'store':
      return output.via === undefined ? `${buffer} = ${value}` : `${buffer}[${output.via}[row]] = ${value}`;
    case 'rowSum':
      return `${buffer} ${output.by === 'max' ? 'max=' : 'Σ='} ${value}`;
    default:
      return output satisfies never;
  }
};

function printPairing(pairing: Pairing): string {
  switch (pairing.kind) {
    case 'none':
      return '';
    case 'rotate':
      return `, rotate ${pairing.headDim} by ${pairing.width}`;
    case 'interleave':
      return `, interleave by ${pairing.width}`;
    default:
      return pairing satisfies never;
  }
}

const printExperts = (experts: ExpertRows | undefined): string => {
  if (experts === undefined) return '';
  const known = experts.areKnown === true ? ', known before' : '';
  return `, ${experts.count} experts from ${experts.starts}${known}`;
};

const printRounding = (rounding: Rounding | undefined): string =>
  rounding === undefined ? '' : ` in 8 bits by ${rounding.columns}`;

const printAdapters = ({ slot, slots, rank }: Pick<AdapterRows, 'slot' | 'slots' | 'rank'>): string =>
  `adapters of rank ${rank} in ${slots} slots, by ${slot}`;

const printShrunk = (rows: AdapterRows): string => `${printAdapters(rows)}, from ${rows.shrunk}`;

const printHeads = ({ heads }: GemmKernel): string => (heads === undefined ? '' : `${heads} heads of `);

/** A kernel in a few lines: its anchor, and a line for each result that it writes. */
export function printKernel(kernel: Kernel): string {
  const head = `${kernel.name}: ${kernel.anchor} over ${kernel.rows}`;
  switch (kernel.anchor) {
    case 'gemm':
      return [
        `${head}, ${kernel.a}[${kernel.rows}, ${printHeads(kernel)}${kernel.k}]` +
          `${printRounding(kernel.rounding)}${printExperts(kernel.experts)}`,
        ...(kernel.adapter === undefined ? [] : [`  and ${printShrunk(kernel.adapter)}`]),
        ...kernel.segments.flatMap(({ weight, columns, pairing, outputs, adapter }) => [
          `  ${weight}: ${columns} columns${printPairing(pairing)}`,
          ...(adapter === undefined ? [] : [`    and ${adapter.weight} from part ${adapter.part}`]),
          ...outputs.map((output) => `    ${printOutput(output)}`),
        ]),
        ...(kernel.finish === undefined ? [] : ['  whole rows:']),
        ...(kernel.finish ?? []).map((output) => `    ${printOutput(output)}`),
      ].join('\n');
    case 'attention': {
      const {
        q,
        out,
        mask,
        scale,
        cap,
        heads,
        kvHeads,
        headDim,
        valueDim,
        tail,
        queryRow,
        scales,
        slopes,
        sink,
        slopeFactor,
      } = kernel;
      const [k, v] =
        scales === undefined ? [kernel.k, kernel.v] : [`${kernel.k}·${scales.k}`, `${kernel.v}·${scales.v}`];
      const bias =
        mask.kind === 'bias' ? mask.buffer : `${mask.kind} ${maskBuffers(mask).join(' ')}${printReach(mask)}`;
      const leaning = slopeFactor === undefined ? 'distance' : `position as bf16·${slopeFactor}`;
      const slope = slopes === undefined ? '' : ` + ${slopes}·${leaning}`;
      const sinks = sink === undefined ? '' : `, sinks ${sink}`;
      const queries = queryRow === undefined ? '' : `, queries ${queryRow}`;
      const dots = tail === undefined ? `${scale}·${q}·${k}` : `${scale}·(${q}·${k} + ${tail.q}·${tail.k})`;
      const more = tail === undefined ? '' : ` + ${tail.headDim}`;
      const widths = `${more}${valueDim === undefined ? '' : `, values of ${valueDim}`}`;
      return (
        `${head}, ${out} = softmax(${printCapped(dots, cap)}${slope} + ${bias})·${v}, ` +
        `${heads}/${kvHeads} heads of ${headDim}${widths}${sinks}${queries}`
      );
    }
    case 'logprob': {
      const { parts, a, k, weight, vocab, rowScale, bias, cap, target, draw, logits: stored, rounding } = kernel;
      const logits = stored === undefined ? '' : `, first rows in ${stored}`;
      const drawn = draw === undefined ? '' : `, draw by ${drawBuffers(draw).join(' ')}`;
      const score = printCapped(
        `${a}[R, ${k}]${printRounding(rounding)}·${weight}[${vocab}]·${printScalar(rowScale)}` +
          (bias === undefined ? '' : ` + ${bias}`),
        cap,
      );
      return `${head}, ${parts} of ${score} at ${target}${drawn}${logits}`;
    }
    case 'logprobReduce':
      return `${head}, ${kernel.logProb}, ${kernel.isArgmax} = ${kernel.parts} at ${kernel.target}`;
    case 'sample': {
      const { token, logProb, best, logits, inputs } = kernel;
      return [
        `${head}, ${token}, ${logProb}, ${best.tokens}, ${best.logProbs} of ${logits}`,
        `  by ${Object.values(inputs).join(' ')}`,
      ].join('\n');
    }
    case 'route': {
      const { experts, weights, chosen, count, normalized, factor, groups, inTurn } = kernel;
      const logits = kernel.scores === undefined ? kernel.logits : `${kernel.scores}(${kernel.logits})`;
      return [
        `${head}, ${experts}, ${weights.join(', ')} = the ${chosen} largest of ${count} in ${logits}`,
        ...(kernel.bias === undefined ? [] : [` plus ${kernel.bias}`]),
        ...(groups === undefined ? [] : [` in ${groups.kept} of ${groups.count} groups, by the best ${groups.best}`]),
        ...(normalized ? [', as parts of their sum'] : []),
        ...(inTurn === undefined ? [] : [`, in turn among those within ${inTurn}`]),
        ...(factor === undefined ? [] : [`, times ${factor}`]),
        ...(kernel.pairs === undefined ? [] : [`; ${pairBuffers(kernel.pairs).join(', ')} = their order`]),
      ].join('');
    }
    case 'sortByExpert': {
      return `${head}, ${pairBuffers(kernel).join(', ')} = the order of ${kernel.experts}`;
    }
    case 'shrink': {
      const { out, a, k, weight, scale, parts } = kernel;
      const product = `${a}[${kernel.rows}, ${k}]·${weight}·${scale}`;
      return `${head}, ${out} = ${product}, ${parts} parts, ${printAdapters(kernel)}`;
    }
    case 'links': {
      const { paths, before, end } = kernel;
      const rows = before.map(({ back, out }) => `${out} (${back} back)`);
      const all = [...rows, ...(end === undefined ? [] : [`${end} (ends)`])].join(', ');
      return `${head}, ${all} by ${paths.kind} ${pathBuffers(paths).join(' ')}`;
    }
    case 'scan': {
      const { rule, q, k, v, decay, beta, before, end, out, skip, heads, keyHeads, keyDim, valueDim, scale, epsilon } =
        kernel;
      const { kept, takesTurns } = kernel;
      const turns = takesTurns === true ? ' in turn' : '';
      const keeping = kept === undefined ? '' : `, ${kept.state} from ${kept.from} to ${kept.to.join(' ')}`;
      const unit = epsilon === undefined ? '' : `, unit q and k (${epsilon})`;
      const scaled = `${skip === undefined ? '' : `${skip}·${v} + `}${scale === undefined ? '' : `${scale}·`}`;
      return (
        `${head}, ${out} = ${scaled}${q}·state, ${rule} ${[k, v, decay, beta].join(' ')}` +
        `${unit}, behind ${before} ${end}, ${heads}/${keyHeads} heads${turns} of ${keyDim} × ${valueDim}${keeping}`
      );
    }
    case 'loop': {
      return [
        ...loopDomains(kernel).flatMap(({ columns, headDim, outputs }, i) => [
          `${i === 0 ? head : '  and'} × ${columns}${headDim === undefined ? '' : `, heads of ${headDim}`}`,
          ...outputs.map((output) => `  ${printOutput(output)}`),
        ]),
        ...(kernel.finish === undefined ? [] : ['  whole rows:']),
        ...(kernel.finish ?? []).map((output) => `    ${printOutput(output)}`),
      ].join('\n');
    }
    default:
      return kernel satisfies never;
  }
}

const printOrder = (order: WeightSource['order']): string =>
  order === undefined
    ? ''
    : ` by pairs (${order.rotated} of ${order.headDim}${order.interleaved ? ', neighbours' : ''})`;

function printReach(mask: Mask): string {
  const { window, chunk } = reachOfMask(mask);
  if (window !== undefined) return ` of the last ${window}`;
  return chunk === undefined ? '' : ` of the same ${chunk}`;
}

const printCapped = (score: string, cap: number | undefined): string =>
  cap === undefined ? score : `cap(${score} to ${cap})`;

const printBuffer = ({ name, dtype, rows, columns, space, upper }: BufferDecl): string =>
  `${space} ${name} : ${dtype}[${rows}, ${columns}]${upper === undefined ? '' : ` below ${upper}`}`;

/** Of experts, the sources of the first are named. */
const printWeight = ({
  name,
  layout,
  format,
  sources,
  experts = 1,
  k,
  pairing,
  columnScale,
  columnOffset,
  slots,
}: WeightDecl): string =>
  `packed ${name} : ${layout} ${format} of ` +
  `${slots === undefined ? '' : `${slots.count} slots of ${slots.holds} beside `}` +
  `${sources
    .slice(0, sources.length / experts)
    .map(({ tensor, rows, order }) => `${tensor}[${rows}, ${k}]${printOrder(order)}`)
    .join(' over ')}` +
  `${experts === 1 ? '' : `, and so on for ${experts} experts`}` +
  `${printPairing(pairing)}${columnScale === undefined ? '' : `, columns times ${columnScale}`}` +
  (columnOffset === undefined ? '' : ` + ${columnOffset}`);

/** A whole module: buffers, packed weights and literal vectors, then the kernels in order. */
export const printKernels = (module: KernelModule): string =>
  [
    ...module.buffers.map(printBuffer),
    ...module.weights.map(printWeight),
    ...(module.constants ?? []).map(({ name, values }) => `constant ${name} : f32[${values.length}]`),
    '',
    ...module.kernels.map((kernel) => `${printKernel(kernel)}\n`),
  ].join('\n');
