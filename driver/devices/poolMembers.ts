/** The replicas of a pool and the calls that they have, and which replica or call is next. */
import type { CallArrays } from '../../runtime/call.js';
import { inFlightOf, type Replica } from '../executor.js';
import { entriesOf } from './processEnded.js';
import type { Answer } from './protocol.js';

/** A replica as the pool knows it. */
export interface Member {
  readonly index: number;
  readonly replica: Replica;
  state: 'opening' | 'ready' | 'gone';
  /** The calls that it is computing or has queued, in the order asked. */
  readonly jobs: Set<Job>;
  /** The calls that its last process was computing when it ended. */
  suspects: ReadonlySet<Job>;
}

/** A call on its way through the pool. */
export interface Job {
  readonly kind: 'call' | 'profile';
  readonly name: string;
  readonly inputs: CallArrays;
  readonly resolve: (answer: Answer) => void;
  readonly reject: (error: unknown) => void;
  /** Replicas whose process ended while computing this. */
  readonly ended: Set<Member>;
  /** Number of such endings. */
  attempts: number;
  /** Number of replicas that have it now: two if the first is late. */
  runners: number;
  isCopied: boolean;
  isDone: boolean;
  /** When the first of them was asked, in milliseconds. */
  since: number;
}

/** Amount of work that a replica has. */
const loadOf = ({ jobs }: Member): number => [...jobs].reduce((sum, { inputs }) => sum + entriesOf(inputs), 0);

/** A call that no replica has yet. */
export const newJob = (asked: Pick<Job, 'kind' | 'name' | 'inputs' | 'resolve' | 'reject'>): Job => ({
  ...asked,
  ended: new Set(),
  attempts: 0,
  runners: 0,
  isCopied: false,
  isDone: false,
  since: 0,
});

/**
 * The one of `living` that takes `job`: free, with the least work. A replica whose process ended while computing this
 * call is avoided, unless there is no other. Undefined if none is free.
 */
export function freest(job: Job, living: readonly Member[]): Member | undefined {
  const fresh = living.filter((member) => !job.ended.has(member));
  const free = (fresh.length > 0 ? fresh : living).filter(
    ({ state, jobs, replica }) => state === 'ready' && jobs.size < inFlightOf(replica),
  );
  return free.sort((a, b) => a.jobs.size - b.jobs.size || loadOf(a) - loadOf(b) || a.index - b.index)[0];
}

/** The calls that one replica each is computing or has queued, those that were asked longest ago first. */
export const oldestFirst = (all: readonly Member[]): readonly { readonly job: Job; readonly member: Member }[] =>
  all
    .flatMap((member) => [...member.jobs].map((job) => ({ job, member })))
    .filter(({ job }) => !job.isDone && !job.isCopied)
    .sort((a, b) => a.job.since - b.job.since);
