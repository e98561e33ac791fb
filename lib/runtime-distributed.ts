/**
 * Composition root of programs of several ranks: connects distributed tensors, and ranks that share
 * a process, to the layers below. Apart from lib/runtime.ts, so that `shardwise` alone does not
 * load this code.
 */
import './runtime.js';
import { hooks, layers } from './core/hooks.js';
import { watchCollectives } from './distributed/process-group/process-group.js';
import { findContext, findRuntime } from './distributed/process-group/rank-context.js';
import { eventOf } from './dtensor/debug/comm-debug-mode.js';
import { dtensorLayer } from './dtensor/dtensor-layer.js';

layers.dtensor = dtensorLayer;
hooks.findRank = findRuntime;
hooks.rankInWorld = findContext;
hooks.watchCollectives = (watcher) => watchCollectives((record) => watcher(eventOf(record)));
