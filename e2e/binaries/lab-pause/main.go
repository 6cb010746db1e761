// lab-pause is what the sandbox image of the lab's real nodes holds: it keeps a pod's namespaces open until a signal.
// Static and without a rootfs, because no image can be pulled.
package main

import (
	"os"
	"os/signal"
	"syscall"
)

func main() {
	ended := make(chan os.Signal, 1)
	signal.Notify(ended, syscall.SIGINT, syscall.SIGTERM)
	<-ended
}
