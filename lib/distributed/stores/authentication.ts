/**
 * Mutual authentication of a store's server and clients. Each side answers the other's nonce with
 * an HMAC (RFC 2104) over SHA-256, so the secret is never sent. Later messages are not encrypted.
 */
import { createHmac, randomBytes, timingSafeEqual } from 'node:crypto';
import { isIP } from 'node:net';

export const NONCE_BYTES = 16;
const PROOF_BYTES = 32;
/** A client's first message: its nonce and its proof. */
export const GREETING_BYTES = NONCE_BYTES + PROOF_BYTES;
export const newNonce = (): Buffer => randomBytes(NONCE_BYTES);

/** The HMAC that `side` answers with. */
export function proof(
  secret: string,
  side: 'client' | 'server',
  clientNonce: Buffer,
  serverNonce: Buffer,
): Buffer {
  return createHmac('sha256', secret)
    .update(`shardwise store ${side}`)
    .update(clientNonce)
    .update(serverNonce)
    .digest();
}

export function isProof(given: Buffer, expected: Buffer): boolean {
  return given.length === expected.length && timingSafeEqual(given, expected);
}

/** Whether only this machine can reach the host. */
export function isLoopback(host: string): boolean {
  return host === 'localhost' || host === '::1' || (isIP(host) === 4 && host.startsWith('127.'));
}
