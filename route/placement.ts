/**
 * Who is to hold what: for each adapter the first replicas on its walk along the ring that have room for it. Room is
 * bounded twice: by what is asked for (a replica's part of all demand) and by the number of adapters. The result is a
 * function of its input alone and looks at adapters in the order of their places, so that routers agree, a restart
 * changes nothing, and a replica that comes or leaves moves little: what it takes, and what bounds push on.
 */
import { boundOf } from './bound.js';

/** An adapter that needs holders. */
export interface Item {
  /** Its place: order among the items, and its key on the ring. */
  readonly order: number;
  readonly walk: readonly string[];
  readonly holders: number;
  /** Tokens a period. */
  readonly demand: number;
}

export interface Room {
  /** Adapters that it can hold at once. */
  readonly slots: number;
  /** Its weight over that of all. */
  readonly part: number;
}

/** Names of the holders of each item, in the order of its walk: as many as were asked for if the slots suffice. */
export function place(
  items: readonly Item[],
  rooms: ReadonlyMap<string, Room>,
  epsilon: number,
): ReadonlyMap<Item, readonly string[]> {
  const copies = items.reduce((sum, { holders }) => sum + holders, 0);
  const demand = items.reduce((sum, item) => sum + item.demand, 0);
  const nodes = new Map(
    [...rooms].map(([name, { slots, part }]) => [
      name,
      { count: 0, demand: 0, most: boundOf(epsilon, copies, part), slots, most2: (1 + epsilon) * demand * part },
    ]),
  );
  const holders = new Map<Item, string[]>(items.map((item) => [item, []]));
  const ordered = [...items].sort((a, b) => a.order - b.order);
  const mostCopies = ordered.reduce((most, item) => Math.max(most, item.holders), 0);
  // First holders come first: no second one takes their place.
  for (let copy = 0; copy < mostCopies; copy++) {
    for (const item of ordered) {
      if (item.holders <= copy) continue;
      const found = holders.get(item)!;
      const share = item.demand / item.holders;
      for (const strict of [true, false]) {
        const name = item.walk.find((each) => {
          const node = nodes.get(each);
          if (node === undefined || node.slots === 0 || found.includes(each)) return false;
          if (strict && node.demand + share > node.most2 && node.demand > 0) return false;
          return node.count < (copy === 0 ? node.most : Math.min(node.most, node.slots));
        });
        if (name === undefined) continue;
        const node = nodes.get(name)!;
        node.count++;
        node.demand += share;
        found.push(name);
        break;
      }
    }
  }
  return holders;
}
