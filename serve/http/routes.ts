/** All endpoints that ask models, by room. */
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
  completionRoutes,
  (client) => chatRoutes(client, answerSearch),
  poolingRoutes,
];

/** `counts`: how requests were answered, for metrics. */
export function routesOf(models: ModelClient, counts?: HttpCounts): readonly Route[] {
  const metrics = new ServerMetrics(models, counts);
  return [...ROOMS.flatMap((routes) => routes(metrics.client)), metrics.route];
}
