/** The first answer of a command: when it came, and what it waited for. */
import type { PhaseName } from '../driver/criticalPath.js';
import type { DeviceExecutor } from '../driver/executor.js';
import { type Phases, printPhases } from '../driver/phases.js';
import type { Ui } from '../driver/requests.js';
import { printStartUp, startUpOf } from '../driver/startUp.js';
import type { StartUp } from '../evaluate/resultTypes.js';

export class FirstAnswer {
  readonly #phases: Phases;
  readonly #ui: Pick<Ui, 'detail'>;
  #state: 'waiting' | 'computing' | 'here' = 'waiting';
  #start: StartUp | undefined;

  constructor(phases: Phases, ui: Pick<Ui, 'detail'>) {
    this.#phases = phases;
    this.#ui = ui;
  }

  /** Absent until the answer is here. */
  get start(): StartUp | undefined {
    return this.#start;
  }

  /** Everything is ready: it is being computed. Only the first such call counts. */
  begin(name: PhaseName & `first ${string}`): void {
    if (this.#state !== 'waiting') return;
    this.#state = 'computing';
    this.#phases.begin(name);
  }

  /** It is here, and is told of. Only the first such call counts. Phases of an executor are of device processes. */
  came({ phases: devices = [] }: Pick<DeviceExecutor, 'phases'>): void {
    if (this.#state !== 'computing') return;
    this.#state = 'here';
    const phases = this.#phases;
    phases.end();
    this.#start = startUpOf(phases.spans, devices);
    if (this.#start !== undefined) this.#ui.detail(printStartUp(this.#start));
    this.#ui.detail(printPhases(phases.spans, devices));
  }

  /** At each progress event of scoring: the first comes when everything is packed, the second with the first answer. */
  onProgress(executor: Pick<DeviceExecutor, 'phases'>): void {
    if (this.#state === 'waiting') this.begin('first micro-batch');
    else this.came(executor);
  }
}
