// Has NVIDIA's own parser read configurations of its device plugin, in the environment of the pod.
//
// Stdin: {name: {"config": text, "env": {variable: value}}}. Stdout: {name: {"config", "strategy",
// "resource", "error"}}. The flags below are those of cmd/nvidia-device-plugin, whose main cannot
// be imported: a variable of the environment wins over the configuration.
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"

	spec "github.com/NVIDIA/k8s-device-plugin/api/config/v1"
	cli "github.com/urfave/cli/v2"
)

type asked struct {
	Config string            `json:"config"`
	Env    map[string]string `json:"env"`
}

type understood struct {
	Config   *spec.Config         `json:"config,omitempty"`
	Strategy spec.SharingStrategy `json:"strategy,omitempty"`
	Resource spec.ResourceName    `json:"resource,omitempty"`
	Error    string               `json:"error,omitempty"`
}

func text(name, value string, env ...string) cli.Flag {
	return &cli.StringFlag{Name: name, Value: value, EnvVars: env}
}

func truth(name string, value bool, env ...string) cli.Flag {
	return &cli.BoolFlag{Name: name, Value: value, EnvVars: env}
}

func flags() []cli.Flag {
	return []cli.Flag{
		text("mig-strategy", spec.MigStrategyNone, "MIG_STRATEGY"),
		truth("fail-on-init-error", true, "FAIL_ON_INIT_ERROR"),
		text("driver-root", "/", "NVIDIA_DRIVER_ROOT"),
		text("dev-root", "", "NVIDIA_DEV_ROOT"),
		truth("pass-device-specs", false, "PASS_DEVICE_SPECS"),
		&cli.StringSliceFlag{
			Name:    "device-list-strategy",
			Value:   cli.NewStringSlice(spec.DeviceListStrategyEnvVar),
			EnvVars: []string{"DEVICE_LIST_STRATEGY"},
		},
		text("device-id-strategy", spec.DeviceIDStrategyUUID, "DEVICE_ID_STRATEGY"),
		truth("gdrcopy-enabled", true, "GDRCOPY_ENABLED"),
		truth("gds-enabled", true, "GDS_ENABLED"),
		truth("mofed-enabled", true, "MOFED_ENABLED"),
		text("cdi-annotation-prefix", spec.DefaultCDIAnnotationPrefix, "CDI_ANNOTATION_PREFIX"),
		text("nvidia-cdi-hook-path", spec.DefaultNvidiaCTKPath, "NVIDIA_CDI_HOOK_PATH"),
		text("container-driver-root", spec.DefaultContainerDriverRoot, "CONTAINER_DRIVER_ROOT"),
		text("mps-root", "", "MPS_ROOT"),
		text("device-discovery-strategy", "auto", "DEVICE_DISCOVERY_STRATEGY"),
		text("config-file", "", "CONFIG_FILE"),
	}
}

func read(one asked, folder string) (found understood) {
	file := filepath.Join(folder, "config.yaml")
	if err := os.WriteFile(file, []byte(one.Config), 0o600); err != nil {
		return understood{Error: err.Error()}
	}
	os.Clearenv()
	for name, value := range one.Env {
		os.Setenv(name, value)
	}
	os.Setenv("CONFIG_FILE", file)
	app := &cli.App{Flags: flags(), Action: func(c *cli.Context) error {
		config, err := spec.NewConfig(c, c.App.Flags)
		if err != nil {
			return err
		}
		spec.DisableResourceNamingInConfig(config)
		if _, err := spec.NewDeviceListStrategies(*config.Flags.Plugin.DeviceListStrategy); err != nil {
			return err
		}
		found.Config, found.Strategy = config, config.Sharing.SharingStrategy()
		for _, resource := range config.Sharing.ReplicatedResources().Resources {
			found.Resource = resource.Name
			if resource.Rename != "" {
				found.Resource = resource.Rename
			}
		}
		return nil
	}}
	if err := app.Run([]string{"plugin"}); err != nil {
		return understood{Error: err.Error()}
	}
	return found
}

func main() {
	questions, answers := map[string]asked{}, map[string]understood{}
	if err := json.NewDecoder(os.Stdin).Decode(&questions); err != nil {
		fmt.Fprintln(os.Stderr, "stdin:", err)
		os.Exit(2)
	}
	folder, err := os.MkdirTemp("", "plugin-config")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	defer os.RemoveAll(folder)
	for name, one := range questions {
		answers[name] = read(one, folder)
	}
	if err := json.NewEncoder(os.Stdout).Encode(answers); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
