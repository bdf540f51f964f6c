/** `merge`: what shards wrote, of questions in a file or of tasks. */
import { isOfTasks, mergeTasks } from '../../eval/harness/merge.js';
import { mergeShards, type Merged, type MergeRequest } from '../../eval/index.js';
import { findShardFolders } from '../../eval/shardFiles.js';

/** Throws UserError if a shard is missing, given twice, from another run, or modified. */
export function mergeParts(request: MergeRequest): Merged {
  const folders = findShardFolders(request.folders);
  return folders.some(isOfTasks) ? mergeTasks(folders, request.output) : mergeShards(request);
}
