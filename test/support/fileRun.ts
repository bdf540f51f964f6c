/** Results of a file's questions, written as a run writes them. */
import { fileTaskByName } from '../../evaluate/fileTasks.js';
import type { RunIdentity } from '../../evaluate/journal.js';
import { FILE_LAYOUT } from '../../evaluate/layout.js';
import type { Scores } from '../../evaluate/metrics.js';
import type { Question } from '../../evaluate/question.js';
import { type Reported, Reporter } from '../../evaluate/reporter.js';
import type { ResultsHeader } from '../../evaluate/results.js';
import type { WrittenResults } from '../../evaluate/resultTypes.js';
import type { Shard } from '../../evaluate/shardName.js';
import { leafOfFile, windowOfFile } from '../../evaluate/windows.js';

/** Everything that the results are made from. */
export interface FileRun extends ResultsHeader {
  readonly taskName: string;
  readonly questionsInDataset: number;
  readonly questions: readonly Question[];
  readonly scores: readonly Scores[];
  readonly shard?: (Shard & { readonly run: RunIdentity }) | undefined;
}

/** The results, which are on file where there is a folder. */
export async function reportFileRun(run: FileRun, output?: string): Promise<Reported> {
  const { taskName, modelName, questions, scores, shard, finished, ...header } = run;
  const leaf = leafOfFile(fileTaskByName(taskName));
  const reporter = new Reporter({ layout: FILE_LAYOUT, nodes: [leaf], output, shard, now: () => finished });
  const dataset = { questions, docs: [], total: run.questionsInDataset, sha256: '' };
  const answers = { scores: new Map(scores.map((each) => [each.docId, each])), texts: new Map<number, never>() };
  try {
    await reporter.add(windowOfFile(leaf, dataset), answers, modelName);
    return reporter.write({ ...header, modelName }, shard?.run ?? {});
  } finally {
    reporter.close();
  }
}

/** The same on file. */
export async function writeFileRun(output: string, run: FileRun): Promise<WrittenResults> {
  const { results, resultsPath, samplesPath } = await reportFileRun(run, output);
  return { results, resultsPath: resultsPath!, samplesPath: samplesPath! };
}
