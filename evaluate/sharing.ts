/** What the choices of a run share, as users name it. */
import type { TreeSharing } from './tree.js';

export const SHARING_MODES = ['none', 'context', 'kv', 'tree'] as const;
/**
 * What paths share: nothing, the context of their question, or every common beginning, even across questions. With `kv`
 * they share the context too, but in two phases: contexts first, then choices on what is cached of them.
 */
export type Sharing = (typeof SHARING_MODES)[number];

/** The trees that compute the same tokens. */
export const treeSharing = (sharing: Sharing): TreeSharing => (sharing === 'kv' ? 'context' : sharing);
