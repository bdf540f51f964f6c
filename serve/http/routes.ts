/** All endpoints that ask models, by room. */
import { adapterRoutes, findingAdapters } from '../adapters/routes.js';
import { chatRoutes } from '../chat/route.js';
import { completionRoutes } from '../completions/route.js';
import type { Route } from '../exchange.js';
import type { HttpCounts } from '../metrics/httpCounts.js';
import { ServerMetrics } from '../metrics/serverMetrics.js';
import type { ModelClient } from '../models.js';
import { modelRoutes } from './modelRoutes.js';
import { poolingRoutes } from '../pooling/routes.js';
import { answerSearch } from '../search/route.js';

const ROOMS: readonly ((client: ModelClient) => readonly Route[])[] = [
  modelRoutes,
  adapterRoutes,
  completionRoutes,
  (client) => chatRoutes(client, answerSearch),
  poolingRoutes,
];

/** `counts`: how requests were answered, for metrics. */
export function routesOf(models: ModelClient, counts?: HttpCounts): readonly Route[] {
  const metrics = new ServerMetrics(models, counts);
  const { client } = metrics;
  const routes = ROOMS.flatMap((room) => room(client));
  return [...routes.map((route) => findingAdapters(route, client)), metrics.route];
}
