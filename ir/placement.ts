/**
 * Which devices run which part of a plan: replicas of the whole model, each a pipeline of stages.
 * Made by passes/placeStages, executed by runtime/ and driver/.
 */

/** Launches `first` to `end` − 1 of a plan, executed for every micro-batch by one device. */
export interface Stage {
  readonly first: number;
  readonly end: number;
}

/** `replicas × stages.length` devices. One stage covers all launches; several follow each other without a gap. */
export interface DevicePlacement {
  readonly replicas: number;
  readonly stages: readonly Stage[];
}

/** How many replicas of how many stages: what `--parallel` asks for. */
export interface Parallelism {
  readonly replicas: number;
  readonly stages: number;
}

/** The device, counted from 0, that runs a stage of a replica: a replica's stages are neighbours. */
export const deviceOf = (replica: number, stage: number, stages: number): number => replica * stages + stage;
