/** `merge`: what shards wrote, of questions in a file or of tasks. */
import { isOfTasks, mergeTasks } from '../evaluate/harness/merge.js';
import { type Merged, type MergeRequest, mergeShards } from '../evaluate/index.js';
import { findShardFolders } from '../evaluate/shardFiles.js';

/** Throws UserError if a shard is missing, given twice, from another run, or modified. */
export function merge(request: MergeRequest): Merged {
  const folders = findShardFolders(request.folders);
  return folders.some(isOfTasks) ? mergeTasks(folders, request.output) : mergeShards(request);
}
