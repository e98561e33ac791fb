/** Adds 1 twenty times to a counter that other processes share, and prints the sums. */
import { FileStore, TCPStore } from '../../../lib/distributed.js';

const [kind, where] = process.argv.slice(2) as [string, string];
const store = kind === 'file' ? new FileStore(where) : new TCPStore('127.0.0.1', Number(where));
const sums: number[] = [];
for (let i = 0; i < 20; i++) sums.push(await store.add('count', 1));
process.stdout.write(JSON.stringify(sums));
