/** The model and its plan in a few lines, as the explorer's page begins. */
import { bytes, count } from '../../system/text.js';
import { type Inspection, parameterCount } from '../inspect.js';
import { memoryReport } from '../inspectMemory.js';

export function factsOf(inspection: Inspection): readonly (readonly [string, string])[] {
  const { checkpoint, config, plan, model, isa, arithmetic, isArtifact, isTuned, request, unrecognized } = inspection;
  const { capacity, arenaBytes, states, weights } = memoryReport(plan, checkpoint);
  const kind = isArtifact
    ? `artifact, ${isTuned ? 'tuned' : 'not tuned'}`
    : request.init.kind === 'random'
      ? 'made-up weights'
      : 'checkpoint';
  const distinct = new Set(plan.launches.map(({ signature }) => signature)).size;
  const kept = states.reduce((sum, { sizeBytes }) => sum + sizeBytes, 0);
  return [
    ['model', kind],
    ...(checkpoint === undefined
      ? []
      : ([
          ['parameters', count(parameterCount(checkpoint))],
          ['shape', checkpoint.model.summary],
        ] as const)),
    ...(config === undefined
      ? []
      : ([['vocabulary', `${count(config.vocabSize)}, context ${count(config.maxPositions)}`]] as const)),
    ['target', `${isa.startsWith(model.target.name) ? '' : `${model.target.name}, `}${isa}, ${arithmetic} inputs`],
    ['kernels', `${plan.kernels.length}, ${distinct} different texts`],
    ['arena', `${bytes(arenaBytes)} for up to ${count(capacity.most)} ${capacity.counts}`],
    ...(states.length === 0 ? [] : ([['states', `${bytes(kept)}, kept from call to call`]] as const)),
    ...(weights === undefined
      ? []
      : ([['weights', `${bytes(weights.packedBytes)} packed, ${bytes(weights.mappedBytes)} mapped`]] as const)),
    ['recognized', unrecognized.length === 0 ? 'every pattern' : `all but ${count(unrecognized.length)} patterns`],
  ];
}
