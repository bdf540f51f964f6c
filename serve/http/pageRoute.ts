/** The page at `/`: one file, which asks this server and nobody else. */
import type { Route } from '../exchange.js';

/** `html` says what it may load and run in a policy of its own; no other page may show it in a frame. */
export const pageRoute = (html: string): Route => ({
  ...{ method: 'GET', path: '/', isOpen: true },
  handle: (exchange) => {
    exchange.setHeader('content-security-policy', "frame-ancestors 'none'");
    exchange.setHeader('x-content-type-options', 'nosniff');
    exchange.setHeader('referrer-policy', 'no-referrer');
    exchange.setHeader('cache-control', 'no-cache');
    exchange.replyText(200, html, 'text/html; charset=utf-8');
  },
});
