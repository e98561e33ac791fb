/** The entry `shardwise/distributed`: what programs of several ranks use. */
import './runtime.js';

export { StoreError, TimeoutError } from './core/errors.js';
export { FileStore, HashStore, PrefixStore, Store, type StoreValue, TCPStore, type TCPStoreOptions } from './mesh/stores/index.js';
