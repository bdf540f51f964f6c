/** The policy as a configuration wants it. */
import type { Routing } from '../policy.js';
import { Router } from '../router.js';
import type { RouteConfig } from './config.js';

/** An action that takes longer than a load may take is proposed again. */
const SLACK = 1.5;

export const routingOf = ({ policy, limits }: Pick<RouteConfig, 'policy' | 'limits'>): Routing =>
  new Router({
    epsilon: policy.epsilon,
    periodMs: 1000 * policy.placementSeconds,
    quietPeriods: policy.quietPeriods,
    actionTimeoutMs: SLACK * 1000 * limits.loadSeconds,
  });
