/** Drafts behind what a step takes of its texts. */
import { MAX_DRAFTS } from '../draft/limits.js';
import type { StepLimits } from './device.js';
import { cutTree, depthOf, type DraftTree, keysOf, layOut } from './draftTree.js';
import { PAGE_TOKENS, type PagePool } from './pages.js';
import type { Sequence } from './sequence.js';
import type { StateSteps } from './stateSteps.js';
import type { StepDraft } from './stepDraft.js';
import type { SequenceChunk } from './stepMessage.js';

/** What drafts need: room in a step, pages, and rows of states if the model has such. */
export interface DraftRoom {
  readonly limits: StepLimits;
  readonly pool: PagePool;
  readonly states: StateSteps | undefined;
}

/** The piece with what may follow its tokens, as far as the step has room for it, and pages are left. */
export function withDrafts(piece: SequenceChunk, draft: StepDraft, room: DraftRoom): SequenceChunk {
  const { sequence, to } = piece;
  const proposed = sequence.takeDraft();
  if (proposed.tokens.length === 0 || !sequence.isWriting || to !== sequence.tokens.length) return piece;
  const { rows: maxRows = Infinity, keys: maxKeys, filtered: maxFiltered = 0, entries: maxEntries = 0 } = room.limits;
  let most = Math.min(sequence.draftRoom, draft.budget - draft.tokens, maxRows - draft.rows);
  if (sequence.isFiltered) {
    const entries = Math.max(1, sequence.entryCount(MAX_DRAFTS), sequence.entryCount(1));
    most = Math.min(most, maxFiltered - draft.filtered, Math.floor((maxEntries - draft.entries) / entries));
  }
  const tree = room.states?.cut(piece, layOut(proposed, most)) ?? layOut(proposed, most);
  const { drafts, pages } = withPages(sequence, tree, maxKeys - draft.keys, room.pool);
  if (drafts.tokens.length === 0) return piece;
  room.states?.draft(piece, drafts);
  draft.tokens += drafts.tokens.length;
  draft.rows += drafts.tokens.length;
  draft.keys += keysOf(drafts, to);
  drafts.tokens.forEach((_, node) => {
    const depth = depthOf(drafts, node);
    draft.filtered += sequence.isFilteredAfter(depth) ? 1 : 0;
    draft.entries += sequence.entryCount(depth);
  });
  return { ...piece, drafts, branchPages: pages };
}

/** What is left of drafts with so many keys, and the pages that are left; those of branches are held. */
function withPages(sequence: Sequence, all: DraftTree, keys: number, pool: PagePool) {
  const { length } = sequence.tokens;
  const hasPages = sequence.reserve(length + all.chain, pool);
  const room = hasPages ? all.chain : sequence.pages.length * PAGE_TOKENS - length;
  let drafts = cutTree(all, Math.min(room, keys), all.branches.length);
  while (drafts.branches.length > 0 && keysOf(drafts, length) > keys)
    drafts = cutTree(drafts, drafts.chain, drafts.branches.length - 1);
  const pages: number[] = [];
  while (pages.length < drafts.branches.length) {
    const page = pool.take();
    if (page === undefined) break;
    pages.push(page);
  }
  return { drafts: cutTree(drafts, drafts.chain, pages.length), pages };
}
