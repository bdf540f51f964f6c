/**
 * Assigns parts of a plan to devices: replicas of the whole model, each a pipeline of stages. passes/placeStages makes
 * placements; runtime/ and driver/ execute them.
 */

/** Launches `first` to `end` − 1 of a plan, executed for every micro-batch by one device. */
export interface Stage {
  readonly first: number;
  readonly end: number;
}

/** `replicas × stages.length` devices. Together the stages cover all launches, in order and without a gap. */
export interface DevicePlacement {
  readonly replicas: number;
  readonly stages: readonly Stage[];
}

/** The number of replicas and of stages, as `--parallel` gives them. */
export interface Parallelism {
  readonly replicas: number;
  readonly stages: number;
}

/** The device, counted from 0, that runs a stage of a replica. The stages of a replica are on neighbouring devices. */
export const deviceOf = (replica: number, stage: number, stages: number): number => replica * stages + stage;
