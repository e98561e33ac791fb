/**
 * The mesh that functions take where they are given none: that of the innermost `mesh.run`,
 * PyTorch's `with mesh:`.
 */
import { AsyncLocalStorage } from 'node:async_hooks';
import { ArgumentError } from '../../core/errors.js';
import type { DeviceMesh } from './device-mesh.js';

/**
 * Of what a function does and awaits, so that ranks which share the process have each their own.
 */
const current = new AsyncLocalStorage<DeviceMesh>();

/** @internal */
export function runUnder<T>(mesh: DeviceMesh, fn: () => T): T {
  return current.run(mesh, fn);
}

/**
 * The mesh of the innermost {@link DeviceMesh.run} around the call; `op` is who asks, for the
 * error.
 *
 * @throws ArgumentError if there is none
 * @see PyTorch `torch.distributed.device_mesh._mesh_resources.get_current_mesh`
 */
export function getCurrentMesh(op = 'getCurrentMesh'): DeviceMesh {
  const mesh = current.getStore();
  if (mesh !== undefined) return mesh;
  throw new ArgumentError(
    `${op}: expected mesh to be a DeviceMesh, got none. Give one, or call it inside mesh.run(() => …), whose mesh is taken then.`,
    { op, argument: 'mesh' },
  );
}
