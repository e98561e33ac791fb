/** Key-value stores through which ranks find each other. */
export { FileStore } from './file-store.js';
export { HashStore } from './hash-store.js';
export { PrefixStore } from './prefix-store.js';
export { Store, type StoreValue } from './store.js';
export { TCPStore, type TCPStoreOptions } from './tcp-store.js';
