/**
 * Where models are opened that one program uses: a process for the devices of each replica, or this process. Each holds
 * any number of models, so that they share devices, contexts and threads.
 */
import type { Ui } from '../requests.js';
import { DeviceProcess, type ProcessOptions } from './deviceProcess.js';
import { LocalModels } from './hostedModel.js';
import { hasDeviceModule } from './startProcess.js';

export interface HostOptions {
  /**
   * Whether models get a process of their own where this one could have them, so that a fault ends that process alone.
   * Only where the package is built: a process needs a module to run.
   */
  readonly isApart?: boolean;
}

export class DeviceHost {
  /** The models of this process. */
  readonly local = new LocalModels();
  readonly isApart: boolean;
  private readonly processes = new Map<string, DeviceProcess>();

  constructor({ isApart = false }: HostOptions = {}) {
    this.isApart = isApart && hasDeviceModule();
  }

  /** Whether models of this program are or were opened in processes. */
  get hasProcesses(): boolean {
    return this.processes.size > 0;
  }

  /** The process of a device; it runs as long as it has a model. */
  process(options: ProcessOptions, ui: Pick<Ui, 'warn'>): DeviceProcess {
    const key = `${options.target} ${options.device}`;
    const known = this.processes.get(key);
    if (known !== undefined) {
      known.showTo(ui);
      return known;
    }
    const made = new DeviceProcess(options, ui);
    this.processes.set(key, made);
    return made;
  }
}
