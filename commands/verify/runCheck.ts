/** What is compared while documents and answers of a run come again, and what that comes to. */
import { arithmeticName } from '../../driver/precision.js';
import { VERSION } from '../../driver/program.js';
import type { Ui } from '../../driver/requests.js';
import { FILE_LAYOUT, HARNESS_LAYOUT } from '../../evaluate/layout.js';
import { type Answers, responsesOf } from '../../evaluate/taskAnswers.js';
import { docIdOf, DocumentCheck, type RecordedAnswers } from '../../evaluate/verify/checkDocuments.js';
import { chooseDocuments } from '../../evaluate/verify/chooseDocuments.js';
import { chosenWindows } from '../../evaluate/verify/chosenWindows.js';
import { AnswerComparison } from '../../evaluate/verify/compareAnswers.js';
import { CHECKS, Findings } from '../../evaluate/verify/findings.js';
import { type FinishedRun, own } from '../../evaluate/verify/readRun.js';
import { RecordedSamples } from '../../evaluate/verify/recordedSamples.js';
import {
  type DeviceKind,
  isSameKind,
  outcomeOf,
  verdictOf,
  type Verification,
} from '../../evaluate/verify/verification.js';
import type { RunTask, TaskFacts } from '../../evaluate/windows.js';
import { isRecord } from '../../system/json.js';
import { counted } from '../../system/text.js';
import type { DocumentRequests } from '../../tasks/requests/task.js';
import { BOOTSTRAP_DRAWS } from '../../tasks/scores/aggregate.js';
import type { EvaluationUse, OpenedEvaluation } from '../run.js';
import { deviceName } from '../runRecord.js';
import type { RunState } from '../runReporter.js';
import { scoringId } from '../scoreSet.js';
import { asksForTexts } from '../taskTexts.js';
import { textFactsOf } from '../textFacts.js';
import type { Again, Opened, VerifyRequest } from './again.js';
import { checkAsked, checkFile, checkTasks, compareAll } from './checkResults.js';

const textIn = (value: unknown, name: string): string => {
  const found = isRecord(value) ? own(value, name) : undefined;
  return typeof found === 'string' ? found.slice(0, 300) : '';
};

/** The samples of all tasks that have some. Throws UserError. */
function openSamples({ samples }: FinishedRun): ReadonlyMap<string, RecordedSamples | undefined> {
  const opened = new Map<string, RecordedSamples | undefined>();
  try {
    for (const [task, path] of samples) opened.set(task, path === undefined ? undefined : new RecordedSamples(path));
    return opened;
  } catch (error) {
    for (const each of opened.values()) each?.close();
    throw error;
  }
}

const keyOf = (task: TaskFacts, document: DocumentRequests): string => `${docIdOf(document)} ${task.name}`;

export class RunCheck {
  readonly #run: FinishedRun;
  readonly #request: VerifyRequest;
  readonly #findings = new Findings();
  readonly #answers: AnswerComparison;
  readonly #samples: ReadonlyMap<string, RecordedSamples | undefined>;
  readonly #documents: DocumentCheck;
  readonly #chosen: ReadonlyMap<string, ReadonlySet<number>>;
  readonly #notes: string[] = [];
  /** Of the chosen documents that are being computed. */
  readonly #recorded = new Map<string, RecordedAnswers>();
  #again: Again | undefined;
  #opened: OpenedEvaluation | undefined;
  /** The model that answers were computed with. */
  #state: RunState | undefined;

  constructor(run: FinishedRun, request: VerifyRequest, ui: Ui) {
    this.#run = run;
    this.#request = request;
    this.#answers = new AnswerComparison(this.#findings);
    ui.phase('read samples', counted(run.samples.size, 'task'));
    this.#samples = openSamples(run);
    this.#documents = new DocumentCheck(
      this.#findings,
      this.#samples,
      run.record.file === undefined ? HARNESS_LAYOUT : FILE_LAYOUT,
    );
    this.#chosen = chooseDocuments(
      new Map([...this.#samples].map(([task, samples]) => [task, samples?.documents ?? []])),
      { documents: request.sample, seed: request.seed },
    );
  }

  close(): void {
    for (const samples of this.#samples.values()) samples?.close();
  }

  /** How the run is used: all documents are compared, and answers to the chosen ones computed. */
  use(again: Again): EvaluationUse {
    this.#again = again;
    return {
      windows: (all, opened) => {
        this.#opened = opened;
        return chosenWindows(all, {
          document: (task, document) => this.#takeDocument(task, document),
          ended: async ({ task, total }) => this.#documents.finish(task, await total(), BOOTSTRAP_DRAWS),
        });
      },
      reporter: {
        add: ({ tasks }, answers) => {
          for (const task of tasks) this.#takeAnswers(task, answers);
          return Promise.resolve([]);
        },
        write: (state) => {
          this.#state = state;
          return { results: {}, table: '', resultsPath: undefined, samplesPath: undefined };
        },
        close: () => undefined,
      },
    };
  }

  /** Whether the answers to it are to be computed. */
  #takeDocument(task: TaskFacts, document: DocumentRequests): boolean {
    const recorded = this.#documents.document(task, document);
    const isChosen = recorded !== undefined && this.#chosen.get(task.name)?.has(docIdOf(document)) === true;
    if (isChosen) this.#recorded.set(keyOf(task, document), recorded);
    return isChosen;
  }

  #takeAnswers(task: RunTask, answers: Answers): void {
    for (const document of task.documents) {
      const computed = responsesOf(answers, task, document);
      const recorded = this.#recorded.get(keyOf(task, document));
      if (computed === undefined || recorded === undefined)
        throw new Error(`${task.name}: document ${docIdOf(document)} has no answer`);
      this.#recorded.delete(keyOf(task, document));
      const isRolling = task.scores.type === 'loglikelihood_rolling';
      this.#answers.add({ task: task.name, doc: docIdOf(document) }, recorded, computed, isRolling);
    }
  }

  /** What the run came to. Call it once, behind the last answer. */
  verification(opened: readonly Opened[], seconds: number): Verification {
    const { content, path } = this.#run;
    const findings = this.#findings;
    const [recorded, here] = [this.#recordedKind(), this.#kindHere()];
    const sameKind = here === undefined || isSameKind(recorded, here);
    this.#checkFields();
    this.#checkModel(sameKind);
    const outcome = outcomeOf(findings, sameKind);
    const answers = this.#answers.counts;
    const documents = [...this.#samples.values()].reduce((sum, each) => sum + (each?.documents.length ?? 0), 0);
    const kinds = { recorded, here: here ?? null };
    return {
      ...{ verification: 1, results: path, outcome, verdict: verdictOf(findings, outcome, answers, kinds) },
      sample: { documents: answers.documents, of: documents, seed: this.#request.seed },
      checks: Object.fromEntries(CHECKS.map((check) => [check, findings.of(check)])) as Verification['checks'],
      answers,
      devices: { ...kinds, isSameKind: sameKind },
      versions: { recorded: textIn(content, 'git_hash'), here: VERSION },
      differences: findings.differences,
      opened,
      notes: this.#notes,
      seconds,
    };
  }

  #recordedKind(): DeviceKind {
    const { target, isa, name } = this.#run.record.device;
    return { target, isa, name, arithmetic: textIn(own(this.#run.content, 'config'), 'arithmetic') };
  }

  #kindHere(): DeviceKind | undefined {
    const model = this.#state?.model.model;
    if (model === undefined) return undefined;
    const { target, isa } = model;
    return { target: target.name, isa, name: deviceName(target.devices.isHost), arithmetic: arithmeticName(model) };
  }

  #checkFields(): void {
    const [findings, run, opened, again] = [this.#findings, this.#run, this.#opened, this.#again];
    if (opened === undefined || again === undefined) return;
    const { finished } = this.#documents;
    if (finished !== undefined) checkTasks(findings, run, opened.source, finished);
    if (opened.source.file !== undefined) checkFile(findings, run, opened.source.file);
    this.#checkDigests();
    // A record that is made of these fields says nothing about them.
    if (!run.isRecordGuessed) checkAsked(findings, run, again, opened.source);
    else
      this.#notes.push(
        'these results have no record of what was asked, as older versions wrote them: it is taken from other ' +
          'fields, which do not know chosen documents, variables of templates and folders of task files',
      );
  }

  /** Of whole files of samples, where results state them. */
  #checkDigests(): void {
    const stated = own(this.#run.content, 'samples_sha256');
    for (const [task, samples] of this.#samples) {
      if (!isRecord(stated) || samples === undefined || own(stated, task) === samples.sha256) continue;
      const values = { recorded: own(stated, task), computed: samples.sha256 };
      this.#findings.differ('samples', 'samples_sha256', { task, ...values });
    }
  }

  #checkModel(isOfKind: boolean): void {
    const [findings, { content, record }, opened, state] = [this.#findings, this.#run, this.#opened, this.#state];
    if (opened === undefined) return;
    const { loading, source, template } = opened;
    const { tokenizer, checkpoint } = loading;
    const texts = asksForTexts(source.leaves) ? textFactsOf({ tokenizer, checkpoint }) : undefined;
    compareAll(
      findings,
      'model',
      own(content, 'provenance'),
      {
        checkpoint: loading.checkpointId(),
        tokenizer_sha256: tokenizer.hash,
        ...(state === undefined
          ? {}
          : { bos_tokens: state.about.added, context_length: state.model.limits.contextLength }),
        ...(texts === undefined ? {} : { end_tokens: texts.endTokens, text_defaults: texts.textDefaults }),
      },
      'provenance',
    );
    if (source.file === undefined) compareAll(findings, 'model', content, { chat_template: template ?? null });
    if (state === undefined) return;
    const { target, isa } = state.model.model;
    const asArithmetic = arithmeticName(state.model.model);
    // It follows from the model, the precision and the instruction set.
    if (target.name === record.device.target && isa === record.device.isa)
      compareAll(findings, 'settings', own(content, 'config'), { arithmetic: asArithmetic }, 'config');
    if (isOfKind && record.artifact !== undefined && record.artifact !== scoringId(state.model))
      this.#notes.push(
        'another graph is computed than for the results ' +
          `(version ${textIn(content, 'git_hash')} there, ${VERSION} here)`,
      );
  }
}
